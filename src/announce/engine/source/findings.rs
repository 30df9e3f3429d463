//! The findings about one source: noted as its tree changes, and told once (R8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::{Form, NotADocument};
use resourcesync::uri::{Topic, Uri, UriMap, UriSet};

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::naming::wrong_urls;
use crate::announce::observation::{Look, NoDocument, Observation};
use crate::announce::plan::SourcePlan;
use crate::announce::state::Record;
use crate::announce::time::later;

/// Number of findings of one kind that are told each; the others are counted.
pub const EXAMPLES: usize = 3;
/// Kind of the findings about unreadable documents.
const BROKEN: &str = "broken";
/// Time after the first finding of a kind, or a summary, in which those beyond the examples are only counted.
const COUNTED_FOR: Duration = Duration::from_secs(60);
/// Number of entries above which the findings about a list are updated later, once for all documents that came or went.
const LARGE: usize = 1_000;
/// Documents that a list names, and of which there is no file, that are findings of their own; the others are counted.
const MAX_WITHOUT_FILE: usize = 100;

/// The findings about one source.
#[derive(Debug)]
pub struct Findings {
    /// The position of the source in the plan.
    source: usize,
    plan: Arc<SourcePlan>,
    /// The findings about each document or set. A node of a set has room for eleven, and most sets hold one.
    by_uri: BTreeMap<Uri, BTreeSet<Box<Finding>>>,
    /// The causes for which there is no document where a Capability List names one.
    explained: UriMap<NoDocument>,
    /// Findings that the operator was told of.
    told: BTreeSet<Finding>,
    kinds: BTreeMap<&'static str, ToldLately>,
    /// Large lists whose findings may not be true any more, until they are looked for again.
    outdated: BTreeSet<Uri>,
    /// The value of [`MAX_WITHOUT_FILE`], unless each is to be told.
    max_without_file: usize,
    /// Findings, and broken documents, that have lasted and are told at the end of the step.
    lasting: Vec<Finding>,
    lasting_broken: Vec<Fact>,
}

/// The findings of one kind that the operator was told of lately.
#[derive(Debug, Clone, Copy)]
struct ToldLately {
    since: Timestamp,
    examples: usize,
    untold: usize,
    is_summed_up: bool,
}

impl Findings {
    pub fn new(source: usize, plan: Arc<SourcePlan>) -> Findings {
        Findings {
            source,
            plan,
            by_uri: BTreeMap::new(),
            explained: UriMap::default(),
            told: BTreeSet::new(),
            kinds: BTreeMap::new(),
            outdated: BTreeSet::new(),
            max_without_file: MAX_WITHOUT_FILE,
            lasting: Vec::new(),
            lasting_broken: Vec::new(),
        }
    }

    /// Makes each document that a list names, and of which there is no file, a finding of its own.
    pub fn find_each(&mut self) {
        self.max_without_file = usize::MAX;
    }

    pub fn is_empty(&self) -> bool {
        self.by_uri.is_empty()
    }

    /// Returns all findings, each with the document or set that it is about.
    pub fn iter(&self) -> impl Iterator<Item = (&Uri, &Finding)> {
        self.by_uri
            .iter()
            .flat_map(|(uri, findings)| findings.iter().map(move |finding| (uri, &**finding)))
    }

    /// Returns the findings about one document or set.
    pub fn about(&self, uri: &Uri) -> impl Iterator<Item = &Finding> {
        let findings = self.by_uri.get(uri).into_iter().flatten();
        findings.map(Box::as_ref)
    }

    /// Returns the sets that lack a channel because another set has one of these topics (R8).
    pub fn without_topic(&self, topics: &BTreeSet<Topic>) -> impl Iterator<Item = &Uri> {
        self.iter().filter_map(|(_, finding)| match finding {
            Finding::SharedTopic { set, topic } if topics.contains(topic) => Some(set),
            _ => None,
        })
    }

    /// Looks for findings about what changed, adding to `affected` the lists that name a document which came or went:
    /// those of large lists a little later.
    pub fn follow(
        &mut self,
        changes: &Changes,
        affected: &mut BTreeSet<Uri>,
        catalog: &Catalog,
        step: &mut Step,
    ) {
        let came_or_went = changes
            .previous
            .iter()
            .filter(|(uri, before)| before.is_some() != catalog.is_there(uri));
        let listers = came_or_went.flat_map(|(uri, _)| catalog.listers(uri));
        let listers: UriSet = listers.map(|(lister, _)| lister.clone()).collect();
        let is_large = |uri: &Uri| {
            let structure = catalog.structure(uri);
            structure.is_some_and(|structure| structure.members.len() > LARGE)
        };
        let (large, others): (BTreeSet<Uri>, BTreeSet<Uri>) =
            listers.into_iter().partition(is_large);
        affected.extend(others);
        self.find_later(large, affected, step);
        self.find(affected, &changes.changed, catalog, step);
    }

    /// Looks for findings about documents that changed, or are related to one that did.
    fn find(&mut self, uris: &BTreeSet<Uri>, changed: &UriSet, catalog: &Catalog, step: &mut Step) {
        for uri in uris {
            let findings = match catalog.get(uri) {
                Some(record) if !record.is_gone() => self.about_document(uri, record, catalog),
                _ if !self.by_uri.contains_key(uri) => continue,
                _ => Vec::new(),
            };
            let known = self.by_uri.get(uri).filter(|_| !changed.contains(uri));
            let is_new = |finding: &&Finding| known.is_none_or(|known| !known.contains(*finding));
            let new = findings.iter().filter(is_new);
            let unexplained = new
                .filter_map(Finding::without_document)
                .filter_map(|uri| self.plan.path_of(uri));
            unexplained.for_each(|path| step.explain(path));
            self.replace(uri, findings, Finding::is_about_document, step.now(), step);
        }
    }

    /// Looks for findings about large lists once the operator may be told of them, unless that is done now.
    fn find_later(&mut self, lists: BTreeSet<Uri>, done_now: &BTreeSet<Uri>, step: &mut Step) {
        let wait = self.plan.broken_after;
        for uri in lists {
            if !done_now.contains(&uri) && self.outdated.insert(uri.clone()) {
                step.wake_after(wait, Timer::Finding(self.source, uri));
            }
        }
    }

    /// Notes the findings about a file that was looked at: it is like a document and none that is announced (R2), or
    /// larger than one may be. Where there is a document, nothing is to be explained any more.
    pub fn note_look(&mut self, uri: &Uri, observation: &Observation, step: &mut Step) {
        if matches!(observation.look, Look::Document { .. }) {
            self.explained.remove(uri);
        }
        let Some(findings) = about_file(uri, &observation.look) else {
            return;
        };
        if !findings.is_empty() || self.by_uri.contains_key(uri) {
            self.replace(uri, findings, Finding::is_about_file, observation.at, step);
        }
    }

    /// Replaces the findings about a set's channel.
    pub fn replace_about_channel(&mut self, set: &Uri, findings: Vec<Finding>, step: &mut Step) {
        self.replace(set, findings, Finding::is_about_channel, step.now(), step);
    }

    /// Replaces the findings about the entries of a list.
    pub fn replace_about_entries(&mut self, list: &Uri, findings: Vec<Finding>, step: &mut Step) {
        self.replace(list, findings, Finding::is_about_entries, step.now(), step);
    }

    /// Replaces the findings of one kind about `uri`. New ones, found at a time, are told if they last for `broken_after`: a
    /// generator that is half done looks wrong for a moment.
    fn replace(
        &mut self,
        uri: &Uri,
        findings: Vec<Finding>,
        is_of_kind: impl Fn(&Finding) -> bool,
        found_at: Timestamp,
        step: &mut Step,
    ) {
        let before = self.by_uri.remove(uri).unwrap_or_default();
        let mut after: BTreeSet<Box<Finding>> = before
            .iter()
            .filter(|finding| !is_of_kind(finding))
            .cloned()
            .collect();
        after.extend(findings.into_iter().map(Box::new));
        let is_news = after.iter().any(|finding| !before.contains(finding));
        for ended in before.difference(&after) {
            let is_recounted = is_count(ended) && after.iter().any(|finding| is_count(finding));
            if !is_recounted {
                self.told.remove(&ended.uncounted());
            }
        }
        if !after.is_empty() {
            self.by_uri.insert(uri.clone(), after);
        }
        if is_news {
            let told_at = later(found_at, self.plan.broken_after);
            step.wake_at(told_at, Timer::Finding(self.source, uri.clone()));
        }
    }

    /// Takes in what lies at a path that holds no document.
    pub fn explain(&mut self, uri: Uri, cause: NoDocument, catalog: &Catalog, step: &mut Step) {
        let wait = self.plan.broken_after;
        let before = match cause {
            NoDocument::Nothing => self.explained.remove(&uri),
            ref cause => self.explained.insert(uri.clone(), cause.clone()),
        };
        let before = before.unwrap_or(NoDocument::Nothing);
        if before == cause {
            return;
        }
        for (set, _) in catalog.listers(&uri) {
            let finding = |cause: &NoDocument| no_document(set, &uri, cause);
            let Some(findings) = self.by_uri.get_mut(set) else {
                continue;
            };
            if findings.remove(&finding(&before)) {
                findings.insert(Box::new(finding(&cause)));
                self.told.remove(&finding(&before));
                step.wake_after(wait, Timer::Finding(self.source, set.clone()));
            }
        }
    }

    /// Marks the findings about a document or set that have lasted, so that they are told at the end of the step.
    pub fn lasted(&mut self, uri: &Uri, catalog: &Catalog, step: &mut Step) {
        if self.outdated.remove(uri) {
            let uris = BTreeSet::from([uri.clone()]);
            self.find(&uris, &UriSet::default(), catalog, step);
        }
        let findings = || self.about(uri);
        // Findings that were counted before are not told again because they are named now.
        let were_counted =
            findings().any(|finding| is_count(finding) && self.told.contains(&finding.uncounted()));
        let findings = self.by_uri.get(uri).into_iter().flatten();
        for finding in findings.map(Box::as_ref) {
            let is_counted = were_counted && matches!(finding, Finding::NoFile { .. });
            if self.told.insert(finding.uncounted()) && !is_counted {
                self.lasting.push(finding.clone());
            }
        }
    }

    /// Marks a document that cannot be read for long, so that it is told at the end of the step.
    pub fn broken_lasted(&mut self, fact: Fact) {
        self.lasting_broken.push(fact);
    }

    /// Tells the operator of findings and broken documents that have lasted: three examples of each kind and the number
    /// of the others, and then nothing of that kind for a while.
    pub fn tell_lasting(&mut self, catalog: &Catalog, step: &mut Step) {
        let mut kinds = BTreeSet::new();
        for fact in std::mem::take(&mut self.lasting_broken) {
            kinds.insert(BROKEN);
            self.tell_one(BROKEN, 1, fact, step);
        }
        let mut wrong = None;
        for finding in std::mem::take(&mut self.lasting) {
            if self.plan.is_acknowledged(&finding) {
                continue;
            }
            if finding.is_of_wrong_url() {
                let wrong = wrong.get_or_insert_with(|| wrong_urls(catalog, &self.plan));
                let mount = finding
                    .uris()
                    .first()
                    .and_then(|uri| self.plan.mount_of(uri));
                if let Some(cause) = mount.and_then(|mount| wrong.get(&mount.id)) {
                    if self.told.insert(cause.clone()) {
                        step.tell(Fact::Found(cause.clone()));
                    }
                    continue;
                }
            }
            let (kind, count) = (finding.kind(), finding.count());
            kinds.insert(kind);
            self.tell_one(kind, count, Fact::Found(finding), step);
        }
        for kind in kinds {
            self.sum_up(kind, step);
        }
    }

    fn tell_one(&mut self, kind: &'static str, count: usize, fact: Fact, step: &mut Step) {
        let fresh = ToldLately {
            since: step.now(),
            examples: 0,
            untold: 0,
            is_summed_up: false,
        };
        let told = self.kinds.entry(kind).or_insert(fresh);
        if later(told.since, COUNTED_FOR) <= step.now() && told.untold == 0 {
            *told = fresh;
        }
        if told.examples < EXAMPLES && count == 1 {
            told.examples += 1;
            step.tell(fact);
            return;
        }
        let is_first_untold = told.untold == 0;
        told.untold += count;
        if is_first_untold {
            let at = later(told.since, COUNTED_FOR);
            step.wake_at(at, Timer::FindingKind(self.source, kind));
        }
    }

    /// Reports how many more there are of a kind: once, and then when its time is over.
    fn sum_up(&mut self, kind: &'static str, step: &mut Step) {
        let Some(told) = self.kinds.get_mut(kind) else {
            return;
        };
        if told.untold > 0 && !told.is_summed_up {
            told.is_summed_up = true;
            let count = std::mem::take(&mut told.untold);
            step.tell(more(&self.plan, kind, count));
        }
    }

    /// Tells how many were found of a kind since it was summed up.
    pub fn tell_untold(&mut self, kind: &'static str, step: &mut Step) {
        let Some(told) = self.kinds.get_mut(kind) else {
            return;
        };
        let untold = told.untold;
        if untold == 0 {
            self.kinds.remove(kind);
            return;
        }
        *told = ToldLately {
            since: step.now(),
            examples: EXAMPLES,
            untold: 0,
            is_summed_up: true,
        };
        step.wake_after(COUNTED_FOR, Timer::FindingKind(self.source, kind));
        step.tell(more(&self.plan, kind, untold));
    }

    fn about_document(&self, uri: &Uri, record: &Record, catalog: &Catalog) -> Vec<Finding> {
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
            self.about_members(uri, &structure.members, catalog, &mut findings);
        }
        findings
    }

    /// Adds the findings about what a Capability List names.
    fn about_members(
        &self,
        set: &Uri,
        members: &[Uri],
        catalog: &Catalog,
        findings: &mut Vec<Finding>,
    ) {
        let is_missing =
            |member: &&Uri| !catalog.is_there(member) && self.plan.mount_of(member).is_some();
        let mut missing = members.iter().filter(is_missing);
        findings.extend(missing.by_ref().take(self.max_without_file).map(|member| {
            let cause = self.explained.get(member);
            no_document(set, member, cause.unwrap_or(&NoDocument::Nothing))
        }));
        let count = missing.count();
        if count > 0 {
            findings.push(Finding::MoreWithoutFile {
                set: set.clone(),
                count,
            });
        }
        let unclean = members.iter().filter(|member| !member.is_clean());
        findings.extend(unclean.map(|member| Finding::Unclean {
            uri: member.as_str().to_owned(),
        }));
    }
}

/// Returns the finding about a document that `set` names, where there is none.
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

fn more(plan: &SourcePlan, kind: &'static str, count: usize) -> Fact {
    Fact::FoundMore {
        source: plan.name.clone(),
        kind,
        count,
    }
}

/// Returns the findings about a file as a look found it; nothing if the look says nothing.
fn about_file(uri: &Uri, look: &Look) -> Option<Vec<Finding>> {
    let uri = uri.clone();
    Some(match look {
        Look::Incomplete(_) => return None,
        Look::Missing => Vec::new(),
        Look::Other { reason, .. } => match reason {
            NotADocument::Capability(capability) => vec![Finding::ForeignCapability {
                uri,
                capability: capability.clone(),
            }],
            NotADocument::Terms { .. }
            | NotADocument::Namespace {
                has_terms: true, ..
            } => vec![Finding::ForeignNamespace {
                uri,
                reason: reason.clone(),
            }],
            _ => Vec::new(),
        },
        Look::Document { parsed, .. } => {
            let relative = parsed.document.relative.as_ref();
            let relative = relative.map(|loc| Finding::RelativeLoc {
                uri: uri.clone(),
                loc: loc.to_string(),
            });
            let oversize = parsed.document.oversize;
            let too_large = oversize.map(|oversize| Finding::TooLarge { uri, oversize });
            relative.into_iter().chain(too_large).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Topic;

    use super::{EXAMPLES, Findings};
    use crate::announce::catalog::Catalog;
    use crate::announce::engine::source::tests::{facts, plan, step, step_at, timers, uri};
    use crate::announce::engine::step::Step;
    use crate::announce::event::Fact;
    use crate::announce::finding::Finding;

    /// Finds something wrong with the channel of a set, or nothing.
    fn find(findings: &mut Findings, set: &str, is_wrong: bool, step: &mut Step) {
        let set = uri(set);
        let topic = Topic::new("https://e.org/topic");
        let finding = is_wrong.then(|| Finding::Unadvertised {
            set: set.clone(),
            topic,
        });
        findings.replace_about_channel(&set, finding.into_iter().collect(), step);
    }

    /// Returns what is told once the findings about these sets have lasted.
    fn told(findings: &mut Findings, sets: &[&str], step: &mut Step) -> Vec<Fact> {
        let catalog = Catalog::new(Default::default());
        for set in sets {
            findings.lasted(&uri(set), &catalog, step);
        }
        findings.tell_lasting(&catalog, step);
        facts(step)
    }

    #[test]
    fn a_finding_is_told_once_it_has_lasted_and_again_only_after_it_ended() {
        let (mut findings, mut step) = (Findings::new(0, plan()), step());
        for _ in 0..2 {
            find(&mut findings, "a", true, &mut step);
        }
        assert_eq!(timers(&mut step), [10]);
        for count in [1, 0] {
            assert_eq!(told(&mut findings, &["a"], &mut step).len(), count);
        }
        find(&mut findings, "a", false, &mut step);
        assert!(findings.is_empty());
        assert_eq!(told(&mut findings, &["a"], &mut step), []);
        find(&mut findings, "a", true, &mut step);
        assert_eq!(told(&mut findings, &["a"], &mut step).len(), 1);
    }

    #[test]
    fn findings_about_a_channel_leave_those_about_entries_alone() {
        let (mut findings, mut step) = (Findings::new(0, plan()), step());
        let back_dated = Finding::BackDated {
            list: uri("a"),
            count: 1,
        };
        findings.replace_about_entries(&uri("a"), vec![back_dated], &mut step);
        find(&mut findings, "a", true, &mut step);
        assert_eq!(findings.about(&uri("a")).count(), 2);
        find(&mut findings, "a", false, &mut step);
        assert_eq!(findings.about(&uri("a")).count(), 1);
        findings.replace_about_entries(&uri("a"), Vec::new(), &mut step);
        assert!(findings.is_empty());
    }

    #[test]
    fn of_many_findings_of_a_kind_some_are_told_and_the_others_counted() {
        let (mut findings, mut step) = (Findings::new(0, plan()), step());
        let sets = ["a", "b", "c", "d", "e"];
        for set in sets {
            find(&mut findings, set, true, &mut step);
        }
        let told_now = told(&mut findings, &sets, &mut step);
        assert_eq!(told_now.len(), EXAMPLES + 1);
        assert!(matches!(
            told_now[EXAMPLES],
            Fact::FoundMore { count: 2, .. }
        ));
        step_at(&mut step, 30);
        find(&mut findings, "f", true, &mut step);
        assert_eq!(told(&mut findings, &["f"], &mut step), [], "too soon");
        findings.tell_untold("unadvertised", &mut step);
        let later = facts(&mut step);
        assert!(matches!(later[..], [Fact::FoundMore { count: 1, .. }]));
    }
}
