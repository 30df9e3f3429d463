//! The effects of a step, in the order in which they are performed: what is saved comes before what is sent.

use crate::announce::engine::channels::Channels;
use crate::announce::engine::source::Source;
use crate::announce::engine::step::Collected;
use crate::announce::event::Effect;
use crate::announce::state::Save;

/// Returns the effects of what a step collected.
pub fn effects(mut collected: Collected, sources: &[Source], channels: &Channels) -> Vec<Effect> {
    let save = changed_rows(&mut collected, sources, channels);
    let mut effects = Vec::new();
    if !save.is_empty() {
        effects.push(Effect::Save(Box::new(save)));
    }
    effects.extend(collected.withdraw.into_iter().map(Effect::Withdraw));
    let served = collected.serve.iter().filter_map(|id| channels.get(*id));
    effects.extend(served.map(|channel| Effect::Serve(channel.topic_page())));
    // A cut is told before the submission.
    effects.extend(collected.facts.into_iter().map(Effect::Tell));
    effects.extend(collected.submit.into_iter().map(Effect::Submit));
    if !collected.look.is_empty() {
        effects.push(Effect::Look(collected.look.into_iter().collect()));
    }
    if !collected.explain.is_empty() {
        let paths = collected.explain.into_iter().collect();
        effects.push(Effect::Explain(paths));
    }
    effects
}

/// Looks up the rows that changed, as they are now.
fn changed_rows(collected: &mut Collected, sources: &[Source], channels: &Channels) -> Save {
    let mut save = std::mem::take(&mut collected.rows);
    for (source, uri) in std::mem::take(&mut collected.documents) {
        let record = sources[source].catalog().shared(&uri);
        save.documents.insert(uri, record);
    }
    for (source, uri) in std::mem::take(&mut collected.troubles) {
        let trouble = sources[source].troubles().get(&uri).cloned();
        save.troubles.insert(uri, trouble);
    }
    for id in collected.channels.iter().chain(&collected.serve) {
        let row = channels.get(*id).map(|channel| channel.row.clone());
        save.channels.insert(*id, row);
    }
    for (id, hub) in std::mem::take(&mut collected.ledgers) {
        let ledger = channels.ledger(id, &hub).map(|ledger| ledger.row.clone());
        save.ledgers.insert((id, hub), ledger);
    }
    for (id, hub, uri) in std::mem::take(&mut collected.told) {
        let ledger = channels.ledger(id, &hub);
        let version = ledger.and_then(|ledger| ledger.told.get(&uri).copied());
        save.told.insert((id, hub, uri), version);
    }
    save
}
