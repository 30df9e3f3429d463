//! The globs of a source: which of its files may be documents (R1).

use globset::GlobBuilder;
use toml::de::DeValue;

use crate::announce::candidates::Candidates;
use crate::config::definition::Fallback::Default;
use crate::config::definition::{Definition, Kind, TextKind};
use crate::config::form::list;
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::loader::Loader;
use crate::config::origin::Given;
use crate::config::section::Section;

pub static INCLUDE: ConfigKey<Vec<String>> = ConfigKey::new(
    "source",
    "include",
    ValueForm {
        kind: Kind::List {
            item: &GLOB_TEXT,
            may_be_empty: false,
        },
        read: |loader, key, value| {
            let is_empty = value.value.as_array().is_some_and(|items| items.is_empty());
            if is_empty {
                let message = "nothing would be watched: name at least one glob, or leave it out";
                loader.report(value.origin, key, message);
            }
            Some(globs(loader, key, value))
        },
    },
    Default("[\"**/*.xml\", \"**/.well-known/resourcesync\"]"),
    "Files that may be capability documents, as globs, in which `*` stops at `/` and `**` does not. They are compared \
     with the path below the mount, and with the path of the URI.",
)
.more(
    "A mount that is published as `https://example.org/.well-known/` holds a Source Description. An empty list is \
     refused. Compressed documents are read if they are included: `include = [\"**/*.xml\", \
     \"**/.well-known/resourcesync\", \"**/*.xml.gz\"]`. Documents that an edit newly includes count as known, like \
     those of a new mount; documents that it no longer includes are forgotten.",
);

pub static EXCLUDE: ConfigKey<Vec<String>> = ConfigKey::new(
    "source",
    "exclude",
    ValueForm {
        kind: Kind::List {
            item: &GLOB_TEXT,
            may_be_empty: true,
        },
        read: |loader, key, value| Some(globs(loader, key, value)),
    },
    Default("[]"),
    "Files to leave out although `include` matches, compared with the same two paths.",
);

const GLOB_TEXT: TextKind = TextKind::matching("^[^/]");

/// Reads the globs of a source; `*` does not match `/`.
pub fn candidates(section: &mut Section<'_, '_, '_>) -> Candidates {
    let origin = section.origin_of(&INCLUDE);
    let include = section.value(&INCLUDE);
    let exclude = section.value(&EXCLUDE);
    Candidates::new(include, exclude).unwrap_or_else(|error| {
        section.loader.report(origin, &INCLUDE.definition, error);
        Candidates::none()
    })
}

fn globs(loader: &mut Loader<'_>, key: &Definition, value: Given<DeValue<'_>>) -> Vec<String> {
    list(loader, key, value, |text| {
        if text.starts_with('/') {
            return Err(format!(
                "\"{text}\" begins with \"/\": globs match the path below the mount"
            ));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        glob.map(|glob| glob.glob().to_owned())
            .map_err(|error| error.to_string())
    })
}
