//! The URIs that an operator may configure: http or https, and free of what would break a header.

use resourcesync::uri::{NotAUri, Uri, is_clean};

/// The reason why a configured URI cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAWebUri {
    #[error(transparent)]
    NotAUri(#[from] NotAUri),
    #[error("\"{0}\" is neither http nor https")]
    Scheme(String),
    #[error("\"{0}\" has a space, a control character, or one of < > \"")]
    Unclean(String),
    #[error("\"{0}\" has a fragment (#), which is never sent")]
    Fragment(String),
    #[error("\"{0}\" has a query (?), which a prefix cannot have")]
    Query(String),
    #[error("\"{0}\" has no valid host or port: {1}")]
    Host(String, url::ParseError),
}

/// Parses a document's address.
pub fn parse(text: &str) -> Result<Uri, NotAWebUri> {
    if !is_clean(text) {
        return Err(NotAWebUri::Unclean(text.escape_debug().to_string()));
    }
    if text.contains('#') {
        return Err(NotAWebUri::Fragment(text.to_owned()));
    }
    let uri = Uri::parse(text)?;
    if !uri.as_str().starts_with("http://") && !uri.as_str().starts_with("https://") {
        return Err(NotAWebUri::Scheme(text.to_owned()));
    }
    url::Url::parse(text).map_err(|error| NotAWebUri::Host(text.to_owned(), error))?;
    Ok(uri)
}

/// Parses a prefix of documents' addresses: `/` is appended where it is missing.
pub fn prefix(text: &str) -> Result<Uri, NotAWebUri> {
    let uri = parse(text)?;
    if uri.as_str().contains('?') {
        return Err(NotAWebUri::Query(text.to_owned()));
    }
    if uri.as_str().ends_with('/') {
        return Ok(uri);
    }
    Ok(Uri::parse(&format!("{uri}/"))?)
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
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
        assert_eq!(
            prefix("https://example.org/?a").unwrap_err().to_string(),
            "\"https://example.org/?a\" has a query (?), which a prefix cannot have"
        );
    }
}
