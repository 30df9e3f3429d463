//! The findings about the trees, by kind and in words, and the sets that are muted by them (R8).

use std::collections::{BTreeMap, BTreeSet};

use announce::finding::Finding;
use announce::plan::SourcePlan;
use announce::steps::engine::StateReader;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Uri};

use crate::report::status::{FindingGroup, MutedSet};
use announce::state::Result;
use announce::steps::findings::{self, EXAMPLES, FindingPart, wrong_urls};

/// Findings that are reported in words; of others, their number.
const MAX_FINDINGS: usize = 100;

/// Returns the findings of each source.
fn all_with_source<'a>(reader: &StateReader<'a>) -> Result<Vec<(&'a SourcePlan, Finding)>> {
    let mut all = Vec::new();
    for plan in &reader.plan.sources {
        let found = findings::of_source(reader.db, plan)?.into_iter();
        all.extend(found.map(|finding| (plan, finding)));
    }
    Ok(all)
}

/// Returns all findings, in order.
pub fn all(reader: &StateReader<'_>) -> Result<BTreeSet<Finding>> {
    let all = all_with_source(reader)?.into_iter();
    Ok(all.map(|(_, finding)| finding).collect())
}

/// Returns all findings by kind: a wrong `url` comes first, and those that are acknowledged last, and by themselves.
pub fn groups(reader: &StateReader<'_>) -> Result<Vec<FindingGroup>> {
    let mut groups: BTreeMap<(bool, bool, &'static str), FindingGroup> = BTreeMap::new();
    for (plan, finding) in all_with_source(reader)? {
        let (acknowledged, kind) = (plan.is_acknowledged(&finding), finding.kind());
        let group = groups
            .entry((acknowledged, kind != "wrong_url", kind))
            .or_insert_with(|| FindingGroup {
                kind: kind.to_owned(),
                count: 0,
                examples: Vec::new(),
                acknowledged,
            });
        group.count += finding.finding_count();
        // To say that there is one more takes as much room as that one.
        if group.examples.len() <= EXAMPLES {
            group.examples.push(finding.to_string());
        }
    }
    let mut groups: Vec<FindingGroup> = groups.into_values().collect();
    for group in groups.iter_mut().filter(|group| group.more() > 0) {
        group.examples.truncate(EXAMPLES);
    }
    Ok(groups)
}

/// Returns the number of findings of each kind in a source that nobody has acknowledged.
pub fn unacknowledged_counts(
    reader: &StateReader<'_>,
    plan: &SourcePlan,
) -> Result<BTreeMap<&'static str, usize>> {
    let mut counts = BTreeMap::new();
    for finding in findings::of_source(reader.db, plan)? {
        if !plan.is_acknowledged(&finding) {
            *counts.entry(finding.kind()).or_default() += finding.finding_count();
        }
    }
    Ok(counts)
}

/// Returns the first findings that nobody has acknowledged, in words, and the number of the others.
pub fn unacknowledged_in_words(reader: &StateReader<'_>) -> Result<(Vec<String>, usize)> {
    let mut all = all_with_source(reader)?;
    all.retain(|(plan, finding)| !plan.is_acknowledged(finding));
    let count: usize = all.iter().map(|(_, finding)| finding.finding_count()).sum();
    let first: BTreeSet<Finding> = all.into_iter().map(|(_, finding)| finding).collect();
    let first = first.iter().take(MAX_FINDINGS).map(Finding::to_string);
    let first = Vec::from_iter(first);
    let more = count.saturating_sub(first.len());
    Ok((first, more))
}

/// Returns the findings about a set's channel.
pub fn about_channel(reader: &StateReader<'_>, set: &Uri) -> Result<BTreeSet<Finding>> {
    let sql = "SELECT said FROM finding WHERE about = ?1 AND part = ?2";
    let texts: Vec<String> = reader.db.all(sql, (set, FindingPart::Channel as u8))?;
    let found = texts.iter().filter_map(|said| findings::parse(said));
    Ok(found.collect())
}

/// Returns the sets of which no change is sent to any hub.
pub fn muted_sets(reader: &StateReader<'_>) -> Result<Vec<MutedSet>> {
    let mut muted = Vec::new();
    for (plan, live) in reader.sources() {
        let found = reader.db.all::<Vec<(Uri, String)>>(
            "SELECT about, said FROM finding WHERE source = ?1 AND part = ?2 ORDER BY about, what",
            (live.id, FindingPart::Channel as u8),
        )?;
        let found = found
            .into_iter()
            .filter_map(|(set, said)| Some((set, findings::parse(&said)?)));
        let muting = found.filter(|(_, finding)| finding.mutes_channel());
        let muting: BTreeSet<(Uri, Finding)> = muting.collect();
        if muting.is_empty() {
            continue;
        }
        let wrong = wrong_urls(reader.db, plan)?;
        // A set is counted once, although both of its channels may have the same problem.
        let mut counted = BTreeSet::new();
        for (set, finding) in muting {
            if !counted.insert((set.clone(), finding.kind())) {
                continue;
            }
            let mount = plan
                .mount_of(&set)
                .filter(|_| finding.is_wrong_url_symptom());
            muted.push(match mount.and_then(|mount| wrong.get(&mount.id)) {
                // Its topic cannot be served because of that.
                Some(cause) => MutedSet {
                    remedy: "correct `url` of this mount".to_owned(),
                    ..muted_set(&plan.name, set, cause)
                },
                None => with_remedy(reader, &finding, muted_set(&plan.name, set, &finding))?,
            });
        }
    }
    Ok(muted)
}

fn muted_set(source: &str, set: Uri, finding: &Finding) -> MutedSet {
    MutedSet {
        source: source.to_owned(),
        set,
        topic: None,
        kind: finding.kind().to_owned(),
        reason: finding.to_string(),
        remedy: String::new(),
    }
}

/// Returns a muted set with its topic, and with what to do about the finding.
fn with_remedy(
    reader: &StateReader<'_>,
    finding: &Finding,
    mut muted: MutedSet,
) -> Result<MutedSet> {
    match finding {
        Finding::ForeignHubs { kind, hubs, .. } => {
            let advertised: Vec<&str> = hubs.iter().map(Hub::as_str).collect();
            let configured = reader.plan.hubs.iter().map(|hub| hub.hub.as_str());
            let configured: Vec<&str> = configured.collect();
            let (advertised, configured) = (advertised.join(" "), configured.join(" "));
            muted.topic = reader.db.first(
                "SELECT c.topic FROM document s CROSS JOIN channel c ON c.set_id = s.id WHERE s.uri = ?1 AND c.kind = ?2 \
                 AND c.retired IS NULL",
                (&muted.set, *kind),
            )?;
            let of_what = match kind {
                ChannelKind::Framework => "",
                ChannelKind::Change => "for changes of resources ",
            };
            muted.reason =
                format!("{of_what}it advertises only hubs that are not configured: {advertised}");
            muted.remedy = format!(
                "was a [[hub]] changed? configured is {configured}: run `rsnotify advertise` for what the Capability List \
                 has to say, or configure {advertised} again"
            );
        }
        Finding::ForeignTopic { topic, .. } => {
            muted.reason = format!("it advertises a topic that cannot be served here: {topic}");
            muted.remedy = "correct server.public_url or the Capability List".to_owned();
            muted.topic = Some(topic.clone());
        }
        Finding::InvalidTopic { topic, .. } => {
            muted.remedy = "correct the topic in the Capability List".to_owned();
            muted.topic = Some(topic.clone());
        }
        Finding::SharedTopic { topic, .. } => {
            muted.reason = format!("it has a topic that another channel has already: {topic}");
            muted.remedy = "give each channel a topic of its own".to_owned();
            muted.topic = Some(topic.clone());
        }
        _ => {}
    }
    Ok(muted)
}
