//! The URIs that an operator may configure: http or https, and free of what would break a header.

use resourcesync::uri::{Uri, is_clean};
use url::Url;

/// Parses a document's address.
pub fn parse(text: &str) -> Result<Uri, String> {
    if !is_clean(text) {
        let shown = text.escape_debug();
        return Err(format!(
            "\"{shown}\" has a space, a control character, or one of < > \""
        ));
    }
    if text.contains('#') {
        return Err(format!(
            "\"{text}\" has a fragment (#), which is never sent"
        ));
    }
    let uri = Uri::parse(text).map_err(|error| error.to_string())?;
    if !uri.as_str().starts_with("http://") && !uri.as_str().starts_with("https://") {
        return Err(format!("\"{text}\" is neither http nor https"));
    }
    match Url::parse(text) {
        Ok(_) => Ok(uri),
        Err(error) => Err(format!("\"{text}\" has no valid host or port: {error}")),
    }
}

/// Parses a prefix of documents' addresses.
pub fn prefix(text: &str) -> Result<Uri, String> {
    let uri = parse(text)?;
    if uri.as_str().contains('?') {
        return Err(format!(
            "\"{text}\" has a query (?), which a prefix cannot have"
        ));
    }
    Ok(with_slash(uri))
}

/// Returns a prefix with `/` at its end, where it is missing.
pub fn with_slash(uri: Uri) -> Uri {
    if uri.as_str().ends_with('/') {
        return uri;
    }
    Uri::parse(&format!("{uri}/", uri = uri.as_str())).unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    use super::{parse, prefix};

    #[test]
    fn a_prefix_ends_in_a_slash() {
        for (written, read) in [
            ("https://example.org", "https://example.org/"),
            ("https://example.org/a", "https://example.org/a/"),
            ("HTTP://Example.org:80/a/", "http://example.org/a/"),
        ] {
            assert_eq!(prefix(written).map(|uri| uri.to_string()), Ok(read.into()));
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_reason() {
        for (text, message) in [
            (
                "",
                "\"\" is not an absolute URI such as https://example.org/",
            ),
            (
                "example.org/a",
                "\"example.org/a\" is not an absolute URI such as https://example.org/",
            ),
            (
                "ftp://example.org/",
                "\"ftp://example.org/\" is neither http nor https",
            ),
            (
                "https://example.org/a b",
                "\"https://example.org/a b\" has a space, a control character, or one of < > \"",
            ),
            (
                "https://example.org/a\n",
                "\"https://example.org/a\\n\" has a space, a control character, or one of < > \"",
            ),
            (
                "https://example.org/#a",
                "\"https://example.org/#a\" has a fragment (#), which is never sent",
            ),
            (
                "https://example.org:99999/",
                "\"https://example.org:99999/\" has no valid host or port: invalid port number",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), message);
        }
        assert_eq!(
            prefix("https://example.org/?a").unwrap_err(),
            "\"https://example.org/?a\" has a query (?), which a prefix cannot have"
        );
    }
}
