//! The findings about the trees, by kind and in words, and the sets that are muted by them (R8).

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Uri};

use crate::announce::engine::Engine;
use crate::announce::engine::source::Source;
use crate::announce::engine::source::findings::EXAMPLES;
use crate::announce::finding::Finding;
use crate::announce::naming::wrong_urls;
use crate::announce::observation::MountId;
use crate::announce::plan::SourcePlan;
use crate::report::status::{FindingGroup, MutedSet};

/// Findings that are reported in words; of others, their number.
const MAX_FINDINGS: usize = 100;

/// Returns all findings.
pub fn all(engine: &Engine) -> BTreeSet<Finding> {
    let positions = 0..engine.sources().len();
    positions
        .flat_map(|position| of_source(engine, position))
        .collect()
}

/// Returns all findings by kind: those that are acknowledged come last, and by themselves.
pub fn groups(engine: &Engine) -> Vec<FindingGroup> {
    let mut groups: BTreeMap<(bool, &'static str), (usize, BTreeSet<Finding>)> = BTreeMap::new();
    for (position, plan) in engine.plan().sources.iter().enumerate() {
        for finding in of_source(engine, position) {
            let key = (plan.is_acknowledged(&finding), finding.kind());
            let (count, first) = groups.entry(key).or_default();
            *count += finding.count();
            let is_among_first =
                first.len() < EXAMPLES || first.last().is_some_and(|last| finding < *last);
            if is_among_first {
                first.insert(finding);
                if first.len() > EXAMPLES {
                    first.pop_last();
                }
            }
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|((acknowledged, kind), (count, first))| FindingGroup {
            kind: kind.to_owned(),
            count,
            examples: first.iter().map(ToString::to_string).collect(),
            acknowledged,
        })
        .collect()
}

/// Returns the number of findings of each kind in a source that nobody has acknowledged.
pub fn counts(engine: &Engine, position: usize) -> BTreeMap<&'static str, usize> {
    let plan = &engine.plan().sources[position];
    let mut counts = BTreeMap::new();
    for finding in of_source(engine, position) {
        if !plan.is_acknowledged(&finding) {
            *counts.entry(finding.kind()).or_default() += finding.count();
        }
    }
    counts
}

/// Returns the first findings that nobody has acknowledged, in words, and the number of the others.
pub fn first(engine: &Engine) -> (Vec<String>, usize) {
    let mut first = BTreeSet::new();
    let mut count = 0;
    for (position, plan) in engine.plan().sources.iter().enumerate() {
        for finding in of_source(engine, position) {
            if plan.is_acknowledged(&finding) {
                continue;
            }
            count += finding.count();
            first.insert(finding);
            if first.len() > MAX_FINDINGS {
                first.pop_last();
            }
        }
    }
    let more = count.saturating_sub(first.len());
    (first.iter().map(ToString::to_string).collect(), more)
}

/// Returns the findings about a set's channel.
pub fn about_channel<'a>(engine: &'a Engine, set: &Uri) -> impl Iterator<Item = &'a Finding> {
    let sources = engine.sources().iter();
    let findings = sources.flat_map(|source| source.findings().about(set));
    findings.filter(|finding| finding.is_about_channel())
}

/// Returns the findings about a source. Where the `url` of a mount is wrong, that is reported instead of what follows
/// from it.
fn of_source(engine: &Engine, position: usize) -> impl Iterator<Item = Finding> {
    let source = &engine.sources()[position];
    let wrong = match source.findings().is_empty() {
        true => WrongUrls::default(),
        false => WrongUrls::of(source, &engine.plan().sources[position]),
    };
    let causes: Vec<Finding> = wrong.findings().cloned().collect();
    let others = source.findings().iter();
    let others = others.filter(move |(uri, finding)| wrong.cause(uri, finding).is_none());
    let others = others.map(|(_, finding)| finding.clone());
    causes.into_iter().chain(others)
}

/// The mounts of a source with a wrong `url`, each with its finding.
#[derive(Default)]
struct WrongUrls<'a> {
    plan: Option<&'a SourcePlan>,
    mounts: BTreeMap<MountId, Finding>,
}

impl<'a> WrongUrls<'a> {
    fn of(source: &Source, plan: &'a SourcePlan) -> WrongUrls<'a> {
        WrongUrls {
            plan: Some(plan),
            mounts: wrong_urls(source.catalog(), plan),
        }
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.mounts.values()
    }

    /// Returns the wrong `url` that a finding about a document follows from, if one does.
    fn cause(&self, uri: &Uri, finding: &Finding) -> Option<&Finding> {
        if self.mounts.is_empty() || !finding.is_of_wrong_url() {
            return None;
        }
        self.mounts.get(&self.plan?.mount_of(uri)?.id)
    }
}

/// Returns the sets of which no change is sent to any hub.
pub fn muted(engine: &Engine) -> impl Iterator<Item = MutedSet> {
    let sources = engine.sources().iter().zip(&engine.plan().sources);
    sources.flat_map(move |(source, plan)| {
        let wrong = match source.findings().iter().any(|(_, it)| it.mutes()) {
            true => WrongUrls::of(source, plan),
            false => WrongUrls::default(),
        };
        let muting = source.findings().iter();
        let muting = muting.filter(|(_, finding)| finding.mutes());
        // A set is counted once, although both of its channels may have the same problem.
        let mut counted = BTreeSet::new();
        let muting =
            muting.filter(move |(set, finding)| counted.insert(((*set).clone(), finding.kind())));
        muting.map(move |(set, finding)| match wrong.cause(set, finding) {
            Some(cause) => muted_by_wrong_url(&plan.name, set, cause),
            None => muted_set(engine, &plan.name, set, finding),
        })
    })
}

/// Returns a set whose topic cannot be served because the `url` of its mount is wrong: correcting that is the remedy.
fn muted_by_wrong_url(source: &str, set: &Uri, cause: &Finding) -> MutedSet {
    MutedSet {
        source: source.to_owned(),
        set: set.clone(),
        topic: None,
        kind: cause.kind().to_owned(),
        reason: cause.to_string(),
        remedy: "correct `url` of this mount".to_owned(),
    }
}

fn muted_set(engine: &Engine, source: &str, set: &Uri, finding: &Finding) -> MutedSet {
    let (topic, reason, remedy) = match finding {
        Finding::ForeignHubs { kind, hubs, .. } => {
            let advertised: Vec<&str> = hubs.iter().map(Hub::as_str).collect();
            let configured = engine.plan().hubs.iter().map(|hub| hub.hub.as_str());
            let configured: Vec<&str> = configured.collect();
            let (advertised, configured) = (advertised.join(" "), configured.join(" "));
            let channels = engine.channels();
            let live = channels.live(set, *kind);
            let live = live.and_then(|id| channels.get(id));
            (
                live.map(|channel| channel.row.topic.clone()),
                match kind {
                    ChannelKind::Framework => {
                        format!("it advertises only hubs that are not configured: {advertised}")
                    }
                    ChannelKind::Change => format!(
                        "for changes of resources it advertises only hubs that are not configured: \
                         {advertised}"
                    ),
                },
                format!(
                    "was a [[hub]] changed? configured is {configured}: run `rsnotify advertise` for what \
                     the Capability List has to say, or configure {advertised} again"
                ),
            )
        }
        Finding::ForeignTopic { topic, .. } => (
            Some(topic.clone()),
            format!("it advertises a topic that cannot be served here: {topic}"),
            "correct server.public_url or the Capability List".to_owned(),
        ),
        Finding::InvalidTopic { topic, .. } => (
            Some(topic.clone()),
            finding.to_string(),
            "correct the topic in the Capability List".to_owned(),
        ),
        Finding::SharedTopic { topic, .. } => (
            Some(topic.clone()),
            format!("it has a topic that another channel has already: {topic}"),
            "give each channel a topic of its own".to_owned(),
        ),
        other => (None, other.to_string(), String::new()),
    };
    MutedSet {
        source: source.to_owned(),
        set: set.clone(),
        topic,
        kind: finding.kind().to_owned(),
        reason,
        remedy,
    }
}
