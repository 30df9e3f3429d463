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
    /// Returns true for a list with this capability. An index of several is not one.
    pub fn is_list_of(&self, capability: Capability) -> bool {
        (self.capability, self.form) == (capability, Form::List)
    }

    /// Returns true for a Source Description, whose changes are announced on every channel (R10).
    pub fn is_description(&self) -> bool {
        self.is_list_of(Capability::SourceDescription)
    }

    /// Returns true for a Capability List, which stands for a set of resources (R7).
    pub fn is_set(&self) -> bool {
        self.is_list_of(Capability::CapabilityList)
    }

    /// Returns true if `version` is a version of the same document: a path whose document changes capability or
    /// form is an old document that ended and a new one that began (R14).
    pub fn is_same_document(&self, version: &Version) -> bool {
        (self.capability, self.form) == (version.capability, version.form)
    }
}

/// The conditions, besides the versions, under which a change may be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnounceConditions {
    /// Archived documents are routed, but silent (R7).
    pub archived: bool,
    /// True if deletions are announced that Framework Notification Table 2 does not have (R12).
    pub all_deletions: bool,
}

/// Returns the changes that may be announced of a document, by the version told and the version seen, which is nothing once it
/// ended: one change; two where an old document ended and a new one began at the same path (R14). Where versions differ and
/// none may be announced, what is seen counts as told (R22).
pub fn difference(
    told: Option<&Version>,
    seen: Option<&Version>,
    conditions: AnnounceConditions,
) -> Vec<(ChangeKind, Capability)> {
    let known = told.filter(|told| seen.is_some_and(|seen| told.is_same_document(seen)));
    if known.is_some() && known == seen {
        return Vec::new();
    }
    let ended = told.filter(|told| known.is_none() && is_deletion_announced(told, conditions));
    let ended = ended.map(|told| (ChangeKind::Deleted, told.capability));
    let said = seen.filter(|seen| is_announceable(seen) && !conditions.archived);
    let said = said.map(|seen| match seen.capability {
        // R12: a Resource Dump is a snapshot, and knows no update.
        Capability::ResourceDump => (ChangeKind::Created, seen.capability),
        _ if known.is_none() => (ChangeKind::Created, seen.capability),
        _ => (ChangeKind::Updated, seen.capability),
    });
    ended.into_iter().chain(said).collect()
}

/// Returns true if a document's deletion would be announced. R12, Framework Notification 1.0.1 Table 2: only that of a
/// Capability List or a Source Description is foreseen.
pub fn is_deletion_announced(version: &Version, conditions: AnnounceConditions) -> bool {
    let foreseen = matches!(
        version.capability,
        Capability::CapabilityList | Capability::SourceDescription
    );
    is_announceable(version) && (foreseen || (conditions.all_deletions && !conditions.archived))
}

// R6, Framework Notification 1.0.1 section 2: an index is never announced itself; manifests lie in packages.
fn is_announceable(version: &Version) -> bool {
    version.form == Form::List && !version.capability.is_manifest()
}

#[cfg(test)]
mod tests {
    use resourcesync::capability::Capability::{self, *};
    use resourcesync::document::Form;
    use resourcesync::fingerprint::Fingerprint;
    use resourcesync::payload::ChangeKind::{self, *};
    use rstest::rstest;

    use super::{AnnounceConditions, difference};
    use crate::difference::Version;

    const ORDINARY: AnnounceConditions = AnnounceConditions {
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
    #[case(ResourceListArchive, &[Created], &[Updated], &[])]
    #[case(ResourceDumpArchive, &[Created], &[Updated], &[])]
    #[case(ChangeListArchive, &[Created], &[Updated], &[])]
    #[case(ChangeDumpArchive, &[Created], &[Updated], &[])]
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
            let want: Vec<_> = want.iter().map(|kind| (*kind, capability)).collect();
            assert_eq!(difference(told, seen, ORDINARY), want);
        }
        assert_eq!(difference(Some(&first), Some(&first), ORDINARY), []);
    }

    #[test]
    fn an_index_is_never_announced() {
        for capability in Capability::all() {
            let index = version(capability, Form::Index, 1);
            let all = AnnounceConditions {
                archived: false,
                all_deletions: true,
            };
            assert_eq!(difference(None, Some(&index), all), []);
            assert_eq!(difference(Some(&index), None, all), []);
        }
    }

    #[test]
    fn a_list_that_becomes_another_document_ended_and_began() {
        let list = version(CapabilityList, Form::List, 1);
        let other = version(ResourceList, Form::List, 1);
        assert_eq!(
            difference(Some(&list), Some(&other), ORDINARY),
            [(Deleted, CapabilityList), (Created, ResourceList)]
        );
    }

    #[test]
    fn an_archived_document_is_silent() {
        let seen = version(ChangeList, Form::List, 2);
        let archived = AnnounceConditions {
            archived: true,
            all_deletions: true,
        };
        assert_eq!(difference(None, Some(&seen), archived), []);
        assert_eq!(difference(Some(&seen), None, archived), []);
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
            [(Updated, ChangeList)]
        );
    }
}
