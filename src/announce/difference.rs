//! The change types: which differences between a version told and a version seen may be announced.

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::ChangeKind;

use rusqlite::Statement;

use crate::state::{Columns, FromRow, Parameters, from_row, parameters};

/// One version of a document, as far as versions are compared (R4, R14): seen, or told to a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub capability: Capability,
    pub form: Form,
    /// Nothing where hubs know that the document existed, but not its content (R13).
    pub fingerprint: Option<Fingerprint>,
}

from_row! { Version { capability, form, fingerprint } }
parameters! { Version { capability, form, fingerprint } }

impl FromRow for Option<Version> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<Version>> {
        let (kind, fingerprint): (Option<_>, _) = row.read()?;
        Ok(kind.map(|(capability, form)| Version {
            capability,
            form,
            fingerprint,
        }))
    }
}

impl Parameters for Option<Version> {
    fn bind(&self, statement: &mut Statement<'_>, bound: &mut usize) -> rusqlite::Result<()> {
        let kind = self.map(|told| (told.capability, told.form));
        (kind, self.and_then(|told| told.fingerprint)).bind(statement, bound)
    }
}

impl Version {
    /// Returns true if `version` is a version of the same document: a path whose document changes capability or
    /// form is an old document that ended and a new one that began (R14).
    pub fn is_same_document(&self, version: &Version) -> bool {
        (self.capability, self.form) == (version.capability, version.form)
    }
}

/// The difference between the version told and the version seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    None,
    /// They differ, and that may not be announced: it counts as told (R22).
    Silent,
    /// One change; two where an old document ended and a new one began at the same path (R14).
    Say(Vec<(ChangeKind, Capability)>),
}

/// The conditions, besides the versions, under which a change may be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// Archived documents are routed, but silent (R7).
    pub archived: bool,
    /// True if deletions are announced that Framework Notification Table 2 does not have (R12).
    pub all_deletions: bool,
}

/// Compares a version told with the version seen; nothing seen means that the document ended.
pub fn difference(
    told: Option<&Version>,
    seen: Option<&Version>,
    permission: Permission,
) -> Difference {
    let changes: Vec<_> = match (told, seen) {
        (None, None) => return Difference::None,
        (None, Some(seen)) => [begun(seen, permission)].into_iter().flatten().collect(),
        (Some(told), None) => [ended(told, permission)].into_iter().flatten().collect(),
        (Some(told), Some(seen)) if told.is_same_document(seen) => {
            if told.fingerprint == seen.fingerprint {
                return Difference::None;
            }
            [changed(seen, permission)].into_iter().flatten().collect()
        }
        (Some(told), Some(seen)) => [ended(told, permission), begun(seen, permission)]
            .into_iter()
            .flatten()
            .collect(),
    };
    if changes.is_empty() {
        Difference::Silent
    } else {
        Difference::Say(changes)
    }
}

/// Returns true if a document's deletion would be announced.
pub fn is_end_said(version: &Version, permission: Permission) -> bool {
    ended(version, permission).is_some()
}

// R6, Framework Notification 1.0.1 section 2: an index is never announced itself; manifests lie in packages.
fn is_speakable(capability: Capability, form: Form) -> bool {
    form == Form::List && !capability.is_manifest()
}

fn begun(seen: &Version, permission: Permission) -> Option<(ChangeKind, Capability)> {
    (is_speakable(seen.capability, seen.form) && !permission.archived)
        .then_some((ChangeKind::Created, seen.capability))
}

fn changed(seen: &Version, permission: Permission) -> Option<(ChangeKind, Capability)> {
    // R12: a Resource Dump is a snapshot, and knows no update.
    let kind = match seen.capability {
        Capability::ResourceDump => ChangeKind::Created,
        _ => ChangeKind::Updated,
    };
    (is_speakable(seen.capability, seen.form) && !permission.archived)
        .then_some((kind, seen.capability))
}

// R12, Framework Notification 1.0.1 Table 2: only the deletion of a Capability List or a Source Description
// is foreseen.
fn ended(told: &Version, permission: Permission) -> Option<(ChangeKind, Capability)> {
    let foreseen = matches!(
        told.capability,
        Capability::CapabilityList | Capability::SourceDescription
    );
    let allowed = foreseen || (permission.all_deletions && !permission.archived);
    (is_speakable(told.capability, told.form) && allowed)
        .then_some((ChangeKind::Deleted, told.capability))
}

#[cfg(test)]
mod tests {
    use resourcesync::capability::Capability::{self, *};
    use resourcesync::document::Form;
    use resourcesync::fingerprint::Fingerprint;
    use resourcesync::payload::ChangeKind::{self, *};
    use rstest::rstest;

    use super::{Difference, Permission, difference};
    use crate::announce::difference::Version;

    const ORDINARY: Permission = Permission {
        archived: false,
        all_deletions: false,
    };

    fn version(capability: Capability, form: Form, content: u8) -> Version {
        Version {
            capability,
            form,
            fingerprint: Some(Fingerprint([content; 32])),
        }
    }

    #[rstest]
    #[case(ResourceList, &[Created], &[Updated], &[])]
    #[case(ResourceDump, &[Created], &[Created], &[])]
    #[case(ChangeList, &[Created], &[Updated], &[])]
    #[case(ChangeDump, &[Created], &[Updated], &[])]
    #[case(CapabilityList, &[Created], &[Updated], &[Deleted])]
    #[case(SourceDescription, &[Created], &[Updated], &[Deleted])]
    #[case(ChangeListArchive, &[Created], &[Updated], &[])]
    #[case(ResourceDumpManifest, &[], &[], &[])]
    fn table_2_decides_what_may_be_said(
        #[case] capability: Capability,
        #[case] created: &[ChangeKind],
        #[case] updated: &[ChangeKind],
        #[case] deleted: &[ChangeKind],
    ) {
        let first = version(capability, Form::List, 1);
        let second = version(capability, Form::List, 2);
        for (told, seen, want) in [
            (None, Some(&first), created),
            (Some(&first), Some(&second), updated),
            (Some(&first), None, deleted),
        ] {
            let want = match want {
                [] => Difference::Silent,
                kinds => Difference::Say(kinds.iter().map(|kind| (*kind, capability)).collect()),
            };
            assert_eq!(difference(told, seen, ORDINARY), want);
        }
        assert_eq!(
            difference(Some(&first), Some(&first), ORDINARY),
            Difference::None
        );
    }

    #[test]
    fn an_index_is_never_announced() {
        for capability in Capability::all() {
            let index = version(capability, Form::Index, 1);
            let all = Permission {
                archived: false,
                all_deletions: true,
            };
            assert_eq!(difference(None, Some(&index), all), Difference::Silent);
            assert_eq!(difference(Some(&index), None, all), Difference::Silent);
        }
    }

    #[test]
    fn a_list_that_becomes_another_document_ended_and_began() {
        let list = version(CapabilityList, Form::List, 1);
        let other = version(ResourceList, Form::List, 1);
        assert_eq!(
            difference(Some(&list), Some(&other), ORDINARY),
            Difference::Say(vec![(Deleted, CapabilityList), (Created, ResourceList)])
        );
    }

    #[test]
    fn an_archived_document_is_silent() {
        let seen = version(ChangeList, Form::List, 2);
        let archived = Permission {
            archived: true,
            all_deletions: true,
        };
        assert_eq!(difference(None, Some(&seen), archived), Difference::Silent);
        assert_eq!(difference(Some(&seen), None, archived), Difference::Silent);
    }

    #[test]
    fn unknown_content_is_updated_at_its_first_good_reading() {
        let seen = version(ChangeList, Form::List, 2);
        let told = Version {
            fingerprint: None,
            ..seen
        };
        assert_eq!(
            difference(Some(&told), Some(&seen), ORDINARY),
            Difference::Say(vec![(Updated, ChangeList)])
        );
    }
}
