//! What is wrong with the tree, noted as it changes and told once (R8).

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::channel::later;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::observation::Look;
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
    pub(super) fn find(&mut self, source: usize, uris: &BTreeSet<Uri>, now: Timestamp) {
        for uri in uris {
            let catalog = &self.sources[source].catalog;
            let findings = match catalog.get(uri) {
                Some(record) if !record.is_gone() => {
                    findings_of(uri, record, catalog, &self.plan.sources[source])
                }
                _ => Vec::new(),
            };
            self.found(source, uri, findings, Finding::is_about_document, now);
        }
    }

    /// Notes what is wrong with a file that was looked at, if it is like a document and none that is
    /// announced (R2).
    pub(super) fn find_foreign(&mut self, source: usize, uri: &Uri, look: &Look, at: Timestamp) {
        let finding = match look {
            Look::Other {
                reason: Other::Capability(capability),
                ..
            } => Some(Finding::ForeignCapability {
                uri: uri.clone(),
                capability: capability.clone(),
            }),
            Look::Incomplete(_) => return,
            _ => None,
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

fn findings_of(uri: &Uri, record: &Record, catalog: &Catalog, source: &SourcePlan) -> Vec<Finding> {
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
        findings.extend(missing.map(|member| Finding::NoFile {
            set: uri.clone(),
            uri: member.clone(),
        }));
        let unclean = structure.members.iter().filter(|member| !member.is_clean());
        findings.extend(unclean.map(|member| Finding::Unclean {
            uri: member.as_str().to_owned(),
        }));
    }
    findings
}
