//! What is wrong with the tree, noted as it changes and told once (R8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::source::Source;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::naming::Naming;
use crate::announce::observation::{DocumentPath, Look, MountId, NoDocument};
use crate::announce::plan::SourcePlan;
use crate::announce::state::Record;
use crate::announce::time::later;
use crate::report::status::{FindingGroup, MutedSet};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::{Form, NotADocument};
use crate::resourcesync::uri::{Hub, Uri};

/// So many findings are told of in a status; of others, how many they are.
const MOST_FINDINGS: usize = 100;
/// So many findings of one kind are told each; the others are counted.
pub const EXAMPLES: usize = 3;
/// The kind of finding that a document which cannot be read is.
const BROKEN: &str = "broken";
/// How long no more is told of a kind of which there were more.
const PAUSE: Duration = Duration::from_secs(60);

/// What the operator was told of one kind of finding lately.
#[derive(Debug, Clone, Copy)]
pub struct ToldLately {
    since: Timestamp,
    examples: usize,
    untold: usize,
    is_summed_up: bool,
}

impl Engine {
    /// What is wrong with the trees (R8).
    pub fn findings(&self) -> BTreeSet<Finding> {
        let sources = 0..self.sources.len();
        sources.flat_map(|source| self.found_in(source)).collect()
    }

    /// What is wrong by kind: what is acknowledged comes last, and is told apart.
    pub fn finding_groups(&self) -> Vec<FindingGroup> {
        let mut groups: BTreeMap<(bool, &'static str), (usize, BTreeSet<Finding>)> =
            BTreeMap::new();
        for (source, plan) in self.plan.sources.iter().enumerate() {
            for finding in self.found_in(source) {
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

    /// Of each kind, how many there are in a source that nobody has acknowledged.
    pub(super) fn finding_counts(&self, source: usize) -> BTreeMap<&'static str, usize> {
        let plan = &self.plan.sources[source];
        let mut counts = BTreeMap::new();
        for finding in self.found_in(source) {
            if !plan.is_acknowledged(&finding) {
                *counts.entry(finding.kind()).or_default() += finding.count();
            }
        }
        counts
    }

    /// The first of them that nobody has acknowledged, in words, and how many more.
    pub(super) fn first_findings(&self) -> (Vec<String>, usize) {
        let mut first = BTreeSet::new();
        let mut count = 0;
        for (source, plan) in self.plan.sources.iter().enumerate() {
            for finding in self.found_in(source) {
                if plan.is_acknowledged(&finding) {
                    continue;
                }
                count += finding.count();
                first.insert(finding);
                if first.len() > MOST_FINDINGS {
                    first.pop_last();
                }
            }
        }
        let more = count.saturating_sub(first.len());
        (first.iter().map(ToString::to_string).collect(), more)
    }

    /// Makes each document that a list names, and of which there is no file, a finding of its own.
    pub fn find_each(&mut self) {
        self.most_without_file = usize::MAX;
    }

    /// What is wrong with a source. Where the `url` of a mount is, that is said instead of what follows from it.
    fn found_in(&self, source: usize) -> impl Iterator<Item = Finding> {
        let state = &self.sources[source];
        let wrong = match state.findings.is_empty() {
            true => BTreeMap::new(),
            false => self.wrong_urls(source),
        };
        let plan = &self.plan.sources[source];
        let findings = state.findings.iter().flat_map(|(uri, findings)| {
            let findings = findings.iter();
            findings.map(move |finding| (uri, finding))
        });
        let follows = {
            let wrong: BTreeSet<MountId> = wrong.keys().copied().collect();
            move |uri: &Uri, finding: &Finding| {
                !wrong.is_empty()
                    && finding.is_of_wrong_url()
                    && plan
                        .mount_of(uri)
                        .is_some_and(|mount| wrong.contains(&mount.id))
            }
        };
        let others = findings.filter(move |(uri, finding)| !follows(uri, finding));
        let others = others.map(|(_, finding)| finding.clone());
        wrong.into_values().chain(others)
    }

    /// The mounts whose documents are named otherwise than they say.
    fn wrong_urls(&self, source: usize) -> BTreeMap<MountId, Finding> {
        let mounts = self.plan.sources[source].mounts.iter();
        let wrong = mounts.filter_map(|mount| {
            let naming = Naming::of(&self.sources[source].catalog, mount);
            let finding = Finding::WrongUrl {
                url: mount.prefix.clone(),
                named: naming.contradiction()?.clone(),
            };
            Some((mount.id, finding))
        });
        wrong.collect()
    }

    /// How the documents of each mount of a source are named.
    pub fn naming(&self, source: usize) -> impl Iterator<Item = Naming> {
        let mounts = self.plan.sources[source].mounts.iter();
        mounts.map(move |mount| Naming::of(&self.sources[source].catalog, mount))
    }

    /// The sets of which no change is sent to any hub.
    pub(super) fn muted(&self) -> impl Iterator<Item = MutedSet> {
        let sources = self.sources.iter().zip(&self.plan.sources);
        sources.flat_map(|(source, plan)| {
            let findings = source.findings.iter();
            let muting = findings.flat_map(|(set, own)| own.iter().map(move |own| (set, own)));
            let muting = muting.filter(|(_, own)| own.mutes());
            muting.map(|(set, finding)| self.muted_set(&plan.name, set, finding))
        })
    }

    fn muted_set(&self, source: &str, set: &Uri, finding: &Finding) -> MutedSet {
        let channels = self.by_set.get(set).into_iter().flatten();
        let mut channels = channels.filter_map(|id| self.channels.get(id));
        let live = channels.find(|own| own.is_live());
        let (topic, reason, remedy) = match finding {
            Finding::ForeignHubs { hubs, .. } => {
                let advertised: Vec<&str> = hubs.iter().map(Hub::as_str).collect();
                let configured = self.plan.hubs.iter().map(|own| own.hub.as_str());
                let configured: Vec<&str> = configured.collect();
                let (advertised, configured) = (advertised.join(" "), configured.join(" "));
                (
                    live.map(|own| own.row.topic.clone()),
                    format!("it advertises only hubs that are not configured: {advertised}"),
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
                format!("it has a topic that another set has already: {topic}"),
                "give each set a topic of its own".to_owned(),
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

    /// What is wrong with a set's channel.
    pub fn channel_findings(&self, set: &Uri) -> impl Iterator<Item = &Finding> {
        let findings = self
            .sources
            .iter()
            .filter_map(|source| source.findings.get(set));
        findings
            .flatten()
            .filter(|finding| finding.is_about_channel())
    }

    /// Notes what is wrong with documents (R8).
    pub(super) fn find(
        &mut self,
        source: usize,
        uris: &BTreeSet<Uri>,
        changed: &BTreeSet<Uri>,
        now: Timestamp,
    ) {
        for uri in uris {
            let state = &self.sources[source];
            let findings = match state.catalog.get(uri) {
                Some(record) if !record.is_gone() => {
                    let plan = &self.plan.sources[source];
                    findings_of(uri, record, state, plan, self.most_without_file)
                }
                _ if !self.sources[source].findings.contains_key(uri) => continue,
                _ => Vec::new(),
            };
            let known = state.findings.get(uri).filter(|_| !changed.contains(uri));
            let is_new = |finding: &&Finding| known.is_none_or(|known| !known.contains(*finding));
            let plan = &self.plan.sources[source];
            let new = findings.iter().filter(is_new);
            let questions = new
                .filter_map(Finding::without_document)
                .filter_map(|uri| plan.path_of(uri));
            self.turn.explain.extend(questions);
            self.found(source, uri, findings, Finding::is_about_document, now);
        }
    }

    /// Asks again what lies at a path that holds no document, where a Capability List names it.
    pub(super) fn question(&mut self, source: usize, uri: &Uri, path: &DocumentPath) {
        let state = &self.sources[source];
        if state.is_settled() && state.catalog.is_listed(uri) && !state.catalog.is_there(uri) {
            self.turn.explain.insert(path.clone());
        }
    }

    /// Takes in what lies at a path that holds no document.
    pub(super) fn explained(&mut self, path: &DocumentPath, cause: NoDocument, now: Timestamp) {
        let (Some(uri), Some(source)) = (self.plan.uri_of(path), self.source_of(path.mount)) else {
            return;
        };
        let state = &mut self.sources[source];
        if state.catalog.is_there(&uri) {
            return;
        }
        let before = match cause {
            NoDocument::Nothing => state.explained.remove(&uri),
            ref cause => state.explained.insert(uri.clone(), cause.clone()),
        };
        let before = before.unwrap_or(NoDocument::Nothing);
        if before == cause {
            return;
        }
        let told_at = later(now, self.plan.sources[source].broken_after);
        let listers = state.catalog.listers(&uri);
        let listers: Vec<Uri> = listers.map(|(lister, _)| lister.clone()).collect();
        for set in listers {
            let finding = |cause: &NoDocument| no_document(&set, &uri, cause);
            let Some(findings) = state.findings.get_mut(&set) else {
                continue;
            };
            if findings.remove(&finding(&before)) {
                findings.insert(finding(&cause));
                state.told_findings.remove(&finding(&before));
                self.timers
                    .insert((told_at, Timer::Finding(source, set.clone())));
            }
        }
    }

    /// Looks for what is wrong with large lists once the operator may be told of it, unless that is done now.
    pub(super) fn find_later(
        &mut self,
        source: usize,
        lists: BTreeSet<Uri>,
        done_now: &BTreeSet<Uri>,
        now: Timestamp,
    ) {
        for uri in lists {
            let is_new =
                !done_now.contains(&uri) && self.sources[source].stale_findings.insert(uri.clone());
            if is_new {
                let at = later(now, self.plan.sources[source].broken_after);
                self.wake_at(at, Timer::Finding(source, uri));
            }
        }
    }

    /// Notes what is wrong with a file that was looked at: it is like a document and none that is announced (R2), or
    /// larger than one may be.
    pub(super) fn find_in_file(&mut self, source: usize, uri: &Uri, look: &Look, at: Timestamp) {
        let mut findings = Vec::new();
        let finding = match look {
            Look::Other {
                reason: NotADocument::Capability(capability),
                ..
            } => Some(Finding::ForeignCapability {
                uri: uri.clone(),
                capability: capability.clone(),
            }),
            Look::Other {
                reason:
                    reason @ (NotADocument::Terms { .. }
                    | NotADocument::Namespace {
                        has_terms: true, ..
                    }),
                ..
            } => Some(Finding::ForeignNamespace {
                uri: uri.clone(),
                reason: reason.clone(),
            }),
            Look::Document { parsed, .. } => {
                let relative = parsed.document.relative.as_ref();
                findings.extend(relative.map(|loc| Finding::RelativeLoc {
                    uri: uri.clone(),
                    loc: loc.to_string(),
                }));
                parsed.document.oversize.map(|oversize| Finding::TooLarge {
                    uri: uri.clone(),
                    oversize,
                })
            }
            Look::Incomplete(_) => return,
            Look::Other { .. } | Look::Missing => None,
        };
        findings.extend(finding);
        if !findings.is_empty() || self.sources[source].findings.contains_key(uri) {
            self.found(source, uri, findings, Finding::is_about_file, at);
        }
    }

    /// Replaces the findings of one kind about `uri`. New ones are told a little later, if they last: a
    /// generator that is half done looks wrong for a moment.
    pub(super) fn found(
        &mut self,
        source: usize,
        uri: &Uri,
        findings: Vec<Finding>,
        is_of_kind: impl Fn(&Finding) -> bool,
        now: Timestamp,
    ) {
        let state = &mut self.sources[source];
        let before = state.findings.remove(uri).unwrap_or_default();
        let mut after: BTreeSet<Finding> = before
            .iter()
            .filter(|finding| !is_of_kind(finding))
            .cloned()
            .collect();
        after.extend(findings);
        let is_news = after.iter().any(|finding| !before.contains(finding));
        for ended in before.difference(&after) {
            let is_recounted = is_count(ended) && after.iter().any(is_count);
            if !is_recounted {
                state.told_findings.remove(&ended.uncounted());
            }
        }
        if !after.is_empty() {
            state.findings.insert(uri.clone(), after);
        }
        if is_news {
            let told_at = later(now, self.plan.sources[source].broken_after);
            self.wake_at(told_at, Timer::Finding(source, uri.clone()));
        }
    }

    /// What was wrong with a document, or still is, may be told.
    pub(super) fn findings_lasted(&mut self, source: usize, uri: &Uri, now: Timestamp) {
        if self.sources[source].stale_findings.remove(uri) {
            self.find(
                source,
                &BTreeSet::from([uri.clone()]),
                &BTreeSet::new(),
                now,
            );
        }
        let state = &mut self.sources[source];
        let findings = state.findings.get(uri);
        // What was counted before is not told again because it is named now.
        let were_counted = findings
            .into_iter()
            .flatten()
            .any(|finding| is_count(finding) && state.told_findings.contains(&finding.uncounted()));
        for finding in findings.into_iter().flatten() {
            let is_counted = were_counted && matches!(finding, Finding::NoFile { .. });
            if state.told_findings.insert(finding.uncounted()) && !is_counted {
                self.turn.found.push((source, finding.clone()));
            }
        }
    }

    /// Tells the operator what was found, or cannot be read: three examples of each kind and how many more, and then
    /// nothing of that kind for a while.
    pub(super) fn tell_found(&mut self, now: Timestamp) {
        let mut wrong = BTreeMap::new();
        let mut kinds = BTreeSet::new();
        for (source, fact) in std::mem::take(&mut self.turn.broken) {
            kinds.insert((source, BROKEN));
            self.tell_one(source, (BROKEN, 1), fact, now);
        }
        for (source, finding) in std::mem::take(&mut self.turn.found) {
            let plan = &self.plan.sources[source];
            if plan.is_acknowledged(&finding) {
                continue;
            }
            if finding.is_of_wrong_url() {
                let wrong: &BTreeMap<MountId, Finding> = wrong
                    .entry(source)
                    .or_insert_with(|| self.wrong_urls(source));
                let mount = finding.uris().first().and_then(|uri| plan.mount_of(uri));
                if let Some(cause) = mount.and_then(|mount| wrong.get(&mount.id)) {
                    if self.sources[source].told_findings.insert(cause.clone()) {
                        self.turn.facts.push(Fact::Found(cause.clone()));
                    }
                    continue;
                }
            }
            let (kind, count) = (finding.kind(), finding.count());
            kinds.insert((source, kind));
            self.tell_one(source, (kind, count), Fact::Found(finding), now);
        }
        for (source, kind) in kinds {
            self.sum_up(source, kind);
        }
    }

    fn tell_one(
        &mut self,
        source: usize,
        (kind, count): (&'static str, usize),
        fact: Fact,
        now: Timestamp,
    ) {
        let fresh = ToldLately {
            since: now,
            examples: 0,
            untold: 0,
            is_summed_up: false,
        };
        let told = self.sources[source].told_kinds.entry(kind).or_insert(fresh);
        if later(told.since, PAUSE) <= now && told.untold == 0 {
            *told = fresh;
        }
        if told.examples < EXAMPLES && count == 1 {
            told.examples += 1;
            self.turn.facts.push(fact);
            return;
        }
        let is_first_untold = told.untold == 0;
        told.untold += count;
        let at = later(told.since, PAUSE);
        if is_first_untold {
            self.wake_at(at, Timer::FindingKind(source, kind));
        }
    }

    /// Says how many more there are of a kind; once, and then when the pause is over.
    fn sum_up(&mut self, source: usize, kind: &'static str) {
        let Some(told) = self.sources[source].told_kinds.get_mut(kind) else {
            return;
        };
        if told.untold > 0 && !told.is_summed_up {
            told.is_summed_up = true;
            let count = std::mem::take(&mut told.untold);
            self.tell_more(source, kind, count);
        }
    }

    pub(super) fn tell_untold(&mut self, source: usize, kind: &'static str, now: Timestamp) {
        let Some(told) = self.sources[source].told_kinds.get_mut(kind) else {
            return;
        };
        let untold = told.untold;
        if untold == 0 {
            self.sources[source].told_kinds.remove(kind);
            return;
        }
        *told = ToldLately {
            since: now,
            examples: EXAMPLES,
            untold: 0,
            is_summed_up: true,
        };
        self.wake_at(later(now, PAUSE), Timer::FindingKind(source, kind));
        self.tell_more(source, kind, untold);
    }

    fn tell_more(&mut self, source: usize, kind: &'static str, count: usize) {
        let source = self.plan.sources[source].name.clone();
        self.tell(Fact::FoundMore {
            source,
            kind,
            count,
        });
    }
}

/// The finding about a document that `set` names, where there is none.
fn no_document(set: &Uri, uri: &Uri, cause: &NoDocument) -> Finding {
    let (set, uri) = (set.clone(), uri.clone());
    match cause {
        NoDocument::Nothing => Finding::NoFile { set, uri },
        cause => Finding::NoDocument {
            set,
            uri,
            cause: cause.clone(),
        },
    }
}

fn is_count(finding: &Finding) -> bool {
    matches!(finding, Finding::MoreWithoutFile { .. })
}

fn findings_of(
    uri: &Uri,
    record: &Record,
    state: &Source,
    source: &SourcePlan,
    most_without_file: usize,
) -> Vec<Finding> {
    let catalog = &state.catalog;
    let mut findings = Vec::new();
    let capability = record.version.capability;
    let needs_set = capability != Capability::SourceDescription && !capability.is_manifest();
    if needs_set && record.relations.sets.is_empty() {
        findings.push(Finding::Unrouted {
            uri: uri.clone(),
            capability,
        });
    }
    if let Some(index) = &record.named_index
        && let Some(target) = catalog.get(index)
        && !target.is_gone()
        && target.version.form != Form::Index
    {
        findings.push(Finding::NoIndex {
            uri: uri.clone(),
            index: index.clone(),
        });
    }
    if let Some(structure) = catalog.structure(uri)
        && structure.capability == Capability::CapabilityList
    {
        let missing = structure
            .members
            .iter()
            .filter(|member| !catalog.is_there(member) && source.mount_of(member).is_some());
        let mut missing = missing;
        findings.extend(missing.by_ref().take(most_without_file).map(|member| {
            let cause = state.explained.get(member);
            no_document(uri, member, cause.unwrap_or(&NoDocument::Nothing))
        }));
        let count = missing.count();
        if count > 0 {
            findings.push(Finding::MoreWithoutFile {
                set: uri.clone(),
                count,
            });
        }
        let unclean = structure.members.iter().filter(|member| !member.is_clean());
        findings.extend(unclean.map(|member| Finding::Unclean {
            uri: member.as_str().to_owned(),
        }));
    }
    findings
}
