//! The sources, and which of them an event of the tree is about.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::{Topic, Uri};

use crate::announce::engine::source::Source;
use crate::announce::engine::source::mounts::{Mounts, UnreadableSample, Visibility};
use crate::announce::engine::step::Step;
use crate::announce::event::Event;
use crate::announce::observation::{DocumentPath, MountId, NoDocument, Observation, Stat};
use crate::announce::plan::Plan;
use crate::announce::state::{MountRow, Record, Trouble};

/// The sources, in the order of the plan. There is one for each of the plan from the start, and never another.
#[derive(Debug)]
pub struct Sources {
    sources: Vec<Source>,
}

impl Deref for Sources {
    type Target = [Source];

    fn deref(&self) -> &[Source] {
        &self.sources
    }
}

impl DerefMut for Sources {
    fn deref_mut(&mut self) -> &mut [Source] {
        &mut self.sources
    }
}

impl<'a> IntoIterator for &'a Sources {
    type Item = &'a Source;
    type IntoIter = std::slice::Iter<'a, Source>;

    fn into_iter(self) -> Self::IntoIter {
        self.sources.iter()
    }
}

impl Sources {
    /// Makes the sources of a plan, with the stored rows of their mounts. Forgets the rows of other mounts.
    pub fn new(plan: &Plan, mut rows: BTreeMap<MountId, MountRow>, step: &mut Step) -> Sources {
        let sources = plan.sources.iter().enumerate().map(|(position, source)| {
            let sets = plan.channels.iter();
            let sets = sets.map(|channel| channel.capability_list.clone());
            let sets: BTreeSet<Uri> = sets.filter(|set| plan.may_hold(source, set)).collect();
            let mounts = Mounts::new(source, &mut rows, step.wall());
            Source::new(position, Arc::new(source.clone()), sets, mounts)
        });
        let sources = sources.collect();
        let rows = rows.into_keys().map(|id| (id, None));
        step.rows().mounts.extend(rows);
        Sources { sources }
    }

    // Taking up a stored state (R13).

    /// Forgets files that are no documents, and no candidates any more.
    pub fn forget_other_files(&self, paths: impl Iterator<Item = DocumentPath>, step: &mut Step) {
        for path in paths {
            if self.candidate(&path).is_none() {
                step.rows().other_files.insert(path, None);
            }
        }
    }

    /// Puts stored documents back, and returns those that are forgotten, because they are no longer configured. A baseline
    /// that was not finished is taken again.
    pub fn restore_documents(
        &mut self,
        documents: BTreeMap<Uri, Arc<Record>>,
        hold: Duration,
        step: &mut Step,
    ) -> BTreeMap<Uri, Arc<Record>> {
        let mut forgotten = BTreeMap::new();
        for (uri, record) in documents {
            match self.baselined(&uri, &record) {
                Some(position) => {
                    let documents = self.sources[position].documents_mut();
                    documents.restore(uri, record, hold, step);
                }
                None => {
                    step.rows().documents.insert(uri.clone(), None);
                    forgotten.insert(uri, record);
                }
            }
        }
        forgotten
    }

    /// Puts back stored candidates that could not be read.
    pub fn restore_troubles(&mut self, troubles: BTreeMap<Uri, Trouble>, step: &mut Step) {
        for (uri, trouble) in troubles {
            match self.candidate(&trouble.path) {
                Some(position) => {
                    let tree = &mut self.sources[position].tree;
                    tree.restore_trouble(uri, trouble, step);
                }
                None => {
                    step.rows().troubles.insert(uri, None);
                }
            }
        }
    }

    /// Returns the source of a document that it has looked at to the end, and still does.
    fn baselined(&self, uri: &Uri, record: &Record) -> Option<usize> {
        let position = self.candidate(&record.path)?;
        let source = &self.sources[position];
        let mount = source.tree.mounts().get(record.path.mount)?;
        let is_ours = source.plan().uri_of(&record.path).as_ref() == Some(uri);
        (is_ours && !mount.is_new_ground(&record.path.below)).then_some(position)
    }

    /// Returns the source that still wants this path looked at.
    fn candidate(&self, path: &DocumentPath) -> Option<usize> {
        let position = self.position(path.mount)?;
        let plan = self.sources[position].plan();
        plan.accepts(path).then_some(position)
    }

    /// Continues what an engine with another plan has seen to be absent.
    pub fn inherit(&mut self, before: &Sources) {
        for source in &mut self.sources {
            let name = &source.plan().name;
            let same = before.iter().find(|before| before.plan().name == *name);
            if let Some(same) = same {
                source.tree.inherit(&same.tree);
            }
        }
    }

    // Events of the tree.

    fn position(&self, mount: MountId) -> Option<usize> {
        let is_its = |source: &Source| source.plan().mount(mount).is_some();
        self.sources.iter().position(is_its)
    }

    /// Returns the source of a mount.
    fn of_mount(&mut self, mount: MountId) -> Option<&mut Source> {
        let position = self.position(mount)?;
        self.sources.get_mut(position)
    }

    /// Returns the source that publishes what lies at a path, with the URI.
    fn publishing(&mut self, path: &DocumentPath) -> Option<(&mut Source, Uri)> {
        let source = self.of_mount(path.mount)?;
        let uri = source.plan().uri_of(path)?;
        Some((source, uri))
    }

    /// Notes what an event of the tree says; all others say nothing.
    pub fn note(&mut self, event: Event, step: &mut Step) {
        match event {
            Event::Observed(observations) => self.observe(observations, step),
            Event::Explained(explained) => self.explain(explained, step),
            Event::MountFound {
                mount,
                identity,
                started,
            } => {
                if let Some(source) = self.of_mount(mount) {
                    source.tree.mount_found(mount, identity, started, step);
                }
            }
            Event::MountLost { mount, reason } => {
                if let Some(source) = self.of_mount(mount) {
                    source.tree.mount_lost(mount, reason, step);
                }
            }
            Event::Swept {
                mount,
                complete,
                candidates,
            } => {
                if let Some(source) = self.of_mount(mount) {
                    match complete {
                        true => source.tree.mount_swept(mount, candidates, step),
                        false => source.tree.leave_mount(mount, step),
                    }
                }
            }
            Event::Unreadable {
                mount,
                directories: first,
                more,
            } => {
                if let Some(source) = self.of_mount(mount) {
                    let unreadable = UnreadableSample { first, more };
                    source.tree.set_unreadable(mount, unreadable);
                }
            }
            Event::Nested {
                mount,
                file_systems,
            } => {
                if let Some(source) = self.of_mount(mount) {
                    source.tree.set_nested(mount, file_systems, step);
                }
            }
            Event::Answered { .. }
            | Event::Taken(_)
            | Event::Fetched(_)
            | Event::Accept { .. }
            | Event::HubChanged(_)
            | Event::Retry { .. }
            | Event::Drop { .. }
            | Event::Tick => {}
        }
    }

    /// Notes what was found at some paths.
    fn observe(&mut self, observations: Vec<Observation>, step: &mut Step) {
        for observation in observations {
            if let Some((source, uri)) = self.publishing(&observation.path) {
                source.observe(uri, observation, step);
            }
        }
    }

    /// Notes why what lies at some paths is no document.
    fn explain(&mut self, explained: Vec<(DocumentPath, NoDocument)>, step: &mut Step) {
        for (path, cause) in explained {
            if let Some((source, uri)) = self.publishing(&path) {
                source.explain(uri, cause, step);
            }
        }
    }

    /// Takes what happened to the visibility of each source.
    pub fn take_visibility_changes(&mut self) -> Vec<(usize, Visibility)> {
        let sources = self.sources.iter_mut().enumerate();
        let changes = sources.filter_map(|(position, source)| {
            Some((position, source.tree.take_visibility_change()?))
        });
        changes.collect()
    }

    // All sources.

    /// Returns true if every present mount of every source was swept.
    pub fn are_settled(&self) -> bool {
        self.sources.iter().all(Source::is_settled)
    }

    /// Returns the end of the first grace.
    pub fn next_grace_end(&self) -> Option<Timestamp> {
        let ends = self.sources.iter();
        ends.filter_map(|source| source.tree.deletions().next_end())
            .min()
    }

    /// Asks for a look at each document whose grace has ended (R15).
    pub fn end_graces(&mut self, step: &mut Step) {
        for source in &mut self.sources {
            source.tree.end_graces(step);
        }
    }

    /// Decides about the deletions that this step's looks found (R15).
    pub fn judge_deletions(&mut self, step: &mut Step) {
        for source in &mut self.sources {
            source.tree.judge_deletions(step);
        }
    }

    /// Tells the operator of findings and broken documents that have lasted (R8).
    pub fn tell_lasting(&mut self, step: &mut Step) {
        for source in &mut self.sources {
            source.tell_lasting(step);
        }
    }

    /// Reconsiders the sets that lack a channel because of a topic that is free now (R8).
    pub fn offer_topics(&mut self, topics: &BTreeSet<Topic>) {
        for source in &mut self.sources {
            source.offer_topics(topics);
        }
    }

    /// Makes each document that a list names, and of which there is no file, a finding of its own.
    pub fn find_each(&mut self) {
        for source in &mut self.sources {
            source.findings_mut().find_each();
        }
    }

    // Paths to read.

    /// Returns the documents whose stat data decide whether they are read again (R4). Structural ones are always
    /// read at start.
    pub fn known(&self) -> impl Iterator<Item = (&DocumentPath, Stat, Timestamp)> {
        let records = self.records();
        records
            .filter(|record| !record.is_read_at_start())
            .map(|record| (&record.path, record.stat, record.looked))
    }

    /// Returns the paths that must be reported as missing if nothing is there, although they are not among
    /// [`Sources::known`]: of documents, and of candidates that could not be read.
    pub fn reread(&self) -> impl Iterator<Item = &DocumentPath> {
        let records = self.records();
        let documents = records
            .filter(|record| record.is_read_at_start())
            .map(|record| &record.path);
        let troubles = self.sources.iter().flat_map(|source| {
            let unknown = |(uri, _): &(&Uri, &Trouble)| !source.catalog().is_there(uri);
            source.tree.troubles().iter().filter(unknown)
        });
        documents.chain(troubles.map(|(_, trouble)| &trouble.path))
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        let sources = self.sources.iter();
        let records = sources.flat_map(|source| source.catalog().iter());
        let records = records.map(|(_, record)| record);
        records.filter(|record| !record.is_gone())
    }
}
