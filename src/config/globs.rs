//! Which files of a source may be documents, as globs (R1).

use globset::GlobBuilder;

use crate::announce::candidates::Candidates;
use crate::announce::plan::DEFAULT_INCLUDE;
use crate::config::raw;
use crate::config::reading::{Given, Origin, Reading, in_file};

/// The globs of a source (R1): at least one is included; `*` does not match `/`.
pub fn candidates(
    reading: &mut Reading<'_>,
    include: raw::Written<Vec<toml::Spanned<String>>>,
    exclude: Option<Vec<toml::Spanned<String>>>,
) -> Candidates {
    let place = include
        .as_ref()
        .map_or(Origin::Absent, |written| Origin::File(written.span().start));
    let include = included(reading, include);
    let exclude = exclude.into_iter().flatten().map(in_file);
    let exclude = globs(reading, "source.exclude", exclude);
    Candidates::new(include, exclude).unwrap_or_else(|error| {
        reading.report(place, "source.include", error.to_string());
        Candidates::none()
    })
}

fn included(
    reading: &mut Reading<'_>,
    written: raw::Written<Vec<toml::Spanned<String>>>,
) -> Vec<String> {
    let key = "source.include";
    let Some(written) = written.map(in_file) else {
        let default = DEFAULT_INCLUDE.map(|glob| Given {
            value: glob.to_owned(),
            origin: Origin::Absent,
        });
        return globs(reading, key, default);
    };
    if written.value.is_empty() {
        let message = "nothing would be watched: name at least one glob, or leave it out";
        reading.report(written.origin, key, message);
    }
    globs(reading, key, written.value.into_iter().map(in_file))
}

fn globs(
    reading: &mut Reading<'_>,
    key: &str,
    given: impl IntoIterator<Item = Given<String>>,
) -> Vec<String> {
    given
        .into_iter()
        .filter_map(|given| {
            reading.checked(key, &given, |text| {
                if text.starts_with('/') {
                    return Err(format!(
                        "\"{text}\" begins with \"/\": globs match the path below the mount"
                    ));
                }
                let glob = GlobBuilder::new(text).literal_separator(true).build();
                glob.map(|glob| glob.glob().to_owned())
                    .map_err(|error| error.to_string())
            })
        })
        .collect()
}
