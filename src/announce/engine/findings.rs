//! What is wrong with the tree, noted as it changes and told once (R8).

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::announce::channel::later;
use crate::announce::engine::source::Source;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::observation::{DocumentPath, Look, NoDocument};
use crate::announce::plan::SourcePlan;
use crate::announce::state::Record;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::{Form, Other};
use crate::resourcesync::uri::Uri;

/// So many findings are told of in a status; of others, how many they are.
const MOST_FINDINGS: usize = 100;

impl Engine {
    /// What is wrong with the trees (R8).
    pub fn findings(&self) -> BTreeSet<Finding> {
        self.each_finding().into_iter().cloned().collect()
    }

    /// The first of them in words, and how many more.
    pub(super) fn first_findings(&self) -> (Vec<String>, usize) {
        let all = self.each_finding();
        let first = all.iter().take(MOST_FINDINGS).map(ToString::to_string);
        (first.collect(), all.len().saturating_sub(MOST_FINDINGS))
    }

    fn each_finding(&self) -> BTreeSet<&Finding> {
        let sources = self.sources.iter();
        sources
            .flat_map(|source| source.findings.values().flatten())
            .collect()
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
                    findings_of(uri, record, state, &self.plan.sources[source])
                }
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

    /// Notes what is wrong with a file that was looked at: it is like a document and none that is announced (R2), or
    /// larger than one may be.
    pub(super) fn find_in_file(&mut self, source: usize, uri: &Uri, look: &Look, at: Timestamp) {
        let finding = match look {
            Look::Other {
                reason: Other::Capability(capability),
                ..
            } => Some(Finding::ForeignCapability {
                uri: uri.clone(),
                capability: capability.clone(),
            }),
            Look::Other {
                reason:
                    reason @ (Other::Terms { .. }
                    | Other::Namespace {
                        has_terms: true, ..
                    }),
                ..
            } => Some(Finding::ForeignNamespace {
                uri: uri.clone(),
                reason: reason.clone(),
            }),
            Look::Document { parsed, .. } => {
                parsed.document.excess.map(|excess| Finding::TooLarge {
                    uri: uri.clone(),
                    excess,
                })
            }
            Look::Incomplete(_) => return,
            Look::Other { .. } | Look::Missing => None,
        };
        if finding.is_some() || self.sources[source].findings.contains_key(uri) {
            let findings = finding.into_iter().collect();
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
            state.told_findings.remove(ended);
        }
        if !after.is_empty() {
            state.findings.insert(uri.clone(), after);
        }
        if is_news {
            let told_at = later(now, self.plan.sources[source].broken_after);
            self.wake_at(told_at, Timer::Finding(source, uri.clone()));
        }
    }

    pub(super) fn tell_findings(&mut self, source: usize, uri: &Uri) {
        let state = &mut self.sources[source];
        for finding in state.findings.get(uri).into_iter().flatten() {
            if state.told_findings.insert(finding.clone()) {
                self.turn.facts.push(Fact::Found(finding.clone()));
            }
        }
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

fn findings_of(uri: &Uri, record: &Record, state: &Source, source: &SourcePlan) -> Vec<Finding> {
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
        findings.extend(missing.map(|member| {
            let cause = state.explained.get(member);
            no_document(uri, member, cause.unwrap_or(&NoDocument::Nothing))
        }));
        let unclean = structure.members.iter().filter(|member| !member.is_clean());
        findings.extend(unclean.map(|member| Finding::Unclean {
            uri: member.as_str().to_owned(),
        }));
    }
    findings
}
