//! One source: its tree as it was observed, findings about its documents, and Source Descriptions that changed shortly
//! before.
//!
//! Each of these is made of parts that own their data; [`Source`] takes what a look found, and lets each know of it.

pub mod changes;
pub mod deletions;
pub mod descriptions;
pub mod documents;
pub mod findings;
pub mod mounts;
pub mod observed_tree;
pub mod sighting;
pub mod troubles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::{Topic, Uri};

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::source::descriptions::Descriptions;
use crate::announce::engine::source::documents::Documents;
use crate::announce::engine::source::findings::Findings;
use crate::announce::engine::source::mounts::Mounts;
use crate::announce::engine::source::observed_tree::ObservedTree;
use crate::announce::engine::step::Step;
use crate::announce::observation::{NoDocument, Observation};
use crate::announce::plan::SourcePlan;

/// A source as the engine keeps it. [`Source::observe`] takes in observations; the documents of its tree gather the
/// consequences for channels until the source settles.
#[derive(Debug)]
pub struct Source {
    plan: Arc<SourcePlan>,
    pub tree: ObservedTree,
    findings: Findings,
    descriptions: Descriptions,
}

impl Source {
    /// Makes the source at this position of the plan, which knows no documents yet.
    pub fn new(
        position: usize,
        plan: Arc<SourcePlan>,
        configured_sets: BTreeSet<Uri>,
        mounts: Mounts,
    ) -> Source {
        Source {
            tree: ObservedTree::new(position, Arc::clone(&plan), configured_sets, mounts),
            findings: Findings::new(position, Arc::clone(&plan)),
            descriptions: Descriptions::default(),
            plan,
        }
    }

    /// Returns the rules that hold for it.
    pub fn plan(&self) -> &SourcePlan {
        &self.plan
    }

    pub fn documents(&self) -> &Documents {
        self.tree.documents()
    }

    pub fn documents_mut(&mut self) -> &mut Documents {
        self.tree.documents_mut()
    }

    pub fn catalog(&self) -> &Catalog {
        self.tree.catalog()
    }

    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    pub fn findings_mut(&mut self) -> &mut Findings {
        &mut self.findings
    }

    pub fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    /// Returns true if every present mount was swept to its end in this run.
    pub fn is_settled(&self) -> bool {
        self.tree.mounts().are_settled()
    }

    // Observations.

    /// Takes one look at a candidate (R3, R4).
    pub fn observe(&mut self, uri: Uri, observation: Observation, step: &mut Step) {
        let uri = self.catalog().interned(uri);
        self.findings.note_look(&uri, &observation, step);
        self.tree.observe(uri, observation, step);
    }

    /// Reports a candidate that has been broken for `broken_after`.
    pub fn trouble_lasted(&mut self, uri: &Uri, step: &mut Step) {
        if let Some(fact) = self.tree.trouble_lasted(uri, step.now()) {
            self.findings.broken_lasted(fact);
        }
    }

    /// Takes in what lies at a path that holds no document.
    pub fn explain(&mut self, uri: Uri, cause: NoDocument, step: &mut Step) {
        let catalog = self.tree.catalog();
        if !catalog.is_there(&uri) {
            self.findings.explain(uri, cause, catalog, step);
        }
    }

    // Settling: what follows from changes.

    /// R10: remembers the Source Descriptions that changed, for sets that are published together with them.
    pub fn remember_descriptions(&mut self, changes: &Changes, quiet: Duration, now: Timestamp) {
        let catalog = self.tree.catalog();
        self.descriptions.remember(changes, catalog, quiet, now);
    }

    /// Reconsiders the sets that lack a channel because of a topic that is free now (R8).
    pub fn offer_topics(&mut self, topics: &BTreeSet<Topic>) {
        let sets = self.findings.without_topic(topics).cloned();
        self.tree.documents_mut().reconsider_sets(sets);
    }

    // Findings (R8).

    /// Looks for findings about what changed; adds to `affected` the lists that they are about.
    pub fn find(&mut self, affected: &mut BTreeSet<Uri>, changes: &Changes, step: &mut Step) {
        let catalog = self.tree.catalog();
        self.findings.follow(changes, affected, catalog, step);
    }

    /// Marks the findings about a document or set that have lasted.
    pub fn findings_lasted(&mut self, uri: &Uri, step: &mut Step) {
        let catalog = self.tree.catalog();
        self.findings.lasted(uri, catalog, step);
    }

    /// Tells the operator of findings and broken documents that have lasted.
    pub fn tell_lasting(&mut self, step: &mut Step) {
        let catalog = self.tree.catalog();
        self.findings.tell_lasting(catalog, step);
    }
}

#[cfg(test)]
mod tests;
