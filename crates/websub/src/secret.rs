//! Secrets, and masks that hide them in texts from elsewhere.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use url::form_urlencoded::{self, byte_serialize};

/// The text shown instead of a secret.
pub const MASKED: &str = "***";

/// A password, token or shared secret. Only [`Secret::reveal`] and [`Secret::bytes`] give it out.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Returns a secret that is text.
    pub fn new(text: impl Into<Arc<str>>) -> Secret {
        Secret(text.into().into())
    }

    /// Returns a secret that need not be text: that of a subscription may be any bytes (WebSub section 5.1).
    pub fn of_bytes(bytes: impl Into<Arc<[u8]>>) -> Secret {
        Secret(bytes.into())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text; nothing of bytes that are none.
    pub fn reveal(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASKED)
    }
}

/// A mask of secrets in texts from elsewhere: a server may repeat what it was sent.
#[derive(Debug, Clone, Default)]
pub struct Mask(
    /// The longest first, so that one within another leaves nothing of that.
    Vec<Secret>,
);

impl Mask {
    /// Returns a mask of these secrets, in every spelling that a server may repeat them in.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Mask {
        let mut spellings: Vec<String> = secrets
            .into_iter()
            .flat_map(|secret| spellings(secret.reveal()))
            .filter(|spelling| !spelling.is_empty())
            .collect();
        spellings.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        spellings.dedup();
        Mask(spellings.into_iter().map(Secret::new).collect())
    }

    /// Returns a form with secrets in its names and values replaced by stars, however they are escaped.
    pub fn hide_in_form(&self, form: &str) -> String {
        let pairs = form_urlencoded::parse(form.trim().as_bytes());
        let hidden = pairs.map(|(name, value)| (self.hide(&name), self.hide(&value)));
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(hidden)
            .finish()
    }

    /// Returns the text with secrets replaced by stars.
    pub fn hide(&self, text: &str) -> String {
        let hidden = |text: String, secret: &Secret| text.replace(secret.reveal(), MASKED);
        self.0.iter().fold(text.to_owned(), hidden)
    }
}

/// Returns a text plain, and as escaped in a form, in HTML and in JSON.
fn spellings(text: &str) -> [String; 5] {
    let form = byte_serialize(text.as_bytes()).collect();
    let page = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;");
    let json = text.replace('\\', "\\\\").replace('"', "\\\"");
    let json_of_php = json.replace('/', "\\/");
    [text.to_owned(), form, page, json, json_of_php]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Mask, Secret};

    #[test]
    fn a_secret_prints_as_stars_and_sends_as_text() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.reveal(), "hunter2");
    }

    #[rstest]
    #[case("nothing to hide", "nothing to hide")]
    #[case("you said hunter2, hunter2!", "you said ***, ***!")]
    #[case("hunter2hunter22", "******2")]
    #[case("long one with hunter2 in it.", "***.")]
    #[case("pass=a%2Fb%22%3C+%26c;", "pass=***;")]
    #[case("<p>a/b&quot;&lt; &amp;c</p>", "<p>***</p>")]
    #[case(r#"{"pass": "a/b\"< &c"}"#, r#"{"pass": "***"}"#)]
    #[case(r#"{"pass": "a\/b\"< &c"}"#, r#"{"pass": "***"}"#)]
    fn a_mask_hides_secrets_as_others_write_them(#[case] text: &str, #[case] want: &str) {
        let secrets = ["hunter2", "", "long one with hunter2 in it", "a/b\"< &c"];
        let mask = Mask::new(secrets.map(Secret::new));
        assert_eq!(mask.hide(text), want);
        assert!(!format!("{mask:?}").contains("hunter"));
    }
}
