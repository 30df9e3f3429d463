//! The effects of a step, in the order in which they are performed: what is saved comes before what is sent.

use jiff::Timestamp;

use crate::announce::desired_channel::is_name_only;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::source::Source;
use crate::announce::engine::step::Collected;
use crate::announce::event::Effect;
use crate::announce::plan::Plan;
use crate::announce::state::{Save, append};

/// Returns the effects of what a step collected. Topics that ping hubs read serve what was cut since `topic_since` (C25).
pub fn effects(
    mut collected: Collected,
    plan: &Plan,
    sources: &[Source],
    channels: &Channels,
    topic_since: Timestamp,
) -> Vec<Effect> {
    let save = changed_rows(&mut collected, sources, channels);
    let mut effects = Vec::new();
    if !save.is_empty() {
        effects.push(Effect::Save(Box::new(save)));
    }
    let withdrawn = collected.withdraw.into_iter();
    // Another channel may have the topic now, and its subscribers.
    let withdrawn = withdrawn.filter(|topic| channels.of_topic(topic).is_none());
    effects.extend(withdrawn.map(Effect::Withdraw));
    let served = collected.serve.iter();
    let served = served.filter_map(|id| Some((*id, channels.get(*id)?)));
    let served = served.filter(|(_, channel)| {
        let source = sources.get(channel.source);
        let source = source.zip(plan.sources.get(channel.source));
        source.is_none_or(|(source, of)| !is_name_only(plan, of, source.catalog(), channel))
    });
    effects.extend(served.map(|(id, channel)| {
        let page = channel.topic_page();
        match channel.logged_page(topic_since, plan.window.max_entries) {
            Some((first, last)) => Effect::ServeLogged(page, id, first, last),
            None => Effect::Serve(page),
        }
    }));
    // A cut is told before the submission.
    effects.extend(collected.facts.into_iter().map(Effect::Tell));
    let submissions = collected.submit.into_iter();
    effects.extend(submissions.map(|(submission, part)| match part {
        Some(part) => Effect::SubmitLogged(submission, part),
        None => Effect::Submit(submission),
    }));
    let requests = collected.take.into_iter();
    effects.extend(requests.map(|request| Effect::Take(Box::new(request))));
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
    let documents = std::mem::take(&mut collected.documents).into_iter();
    // R13: a baseline that was not finished is taken again, so its documents are saved once it is.
    let documents =
        documents.filter(|(source, uri)| !sources[*source].tree.is_before_baseline(uri));
    let documents = documents.map(|(source, uri)| {
        let record = sources[source].catalog().shared(&uri);
        (uri, record)
    });
    append(&mut save.documents, documents.collect());
    for (source, uri) in std::mem::take(&mut collected.troubles) {
        let trouble = sources[source].tree.troubles().get(&uri).cloned();
        save.troubles.insert(uri, trouble);
    }
    for id in &collected.channels {
        let row = channels.get(*id).map(|channel| channel.row.clone());
        save.channels.insert(*id, row);
    }
    for (id, hub) in std::mem::take(&mut collected.ledgers) {
        let ledger = channels.ledger(id, &hub).map(|ledger| ledger.row.clone());
        save.ledgers.insert((id, hub), ledger);
    }
    let told = std::mem::take(&mut collected.told).into_iter();
    let told = told.map(|(id, hub, uri)| {
        let ledger = channels.ledger(id, &hub);
        let version = ledger.and_then(|ledger| ledger.told.get(&uri).copied());
        ((id, hub, uri), version)
    });
    save.told = told.collect();
    save
}
