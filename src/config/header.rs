//! Headers of requests and messages, which `[[hub]]` and `[[broker]]` both have: their values may be secrets.

use std::collections::BTreeMap;

use websub::secret::{MASKED, Secret};

use crate::config::definition::{Definition, path};
use crate::config::effective::{inline, quoted};
use crate::config::holder::{HeaderValue, Holder};
use crate::config::loader::Loader;
use crate::config::origin::Given;
use crate::config::secret::secret_at;

/// A header that is sent with each request or message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Secret,
    /// The holder of the value; nothing if it is written in the configuration, so that it is no secret.
    pub holder: Option<Holder>,
}

/// Returns the headers that a key has as its value. `check` returns an error for a name that cannot be one, or must not
/// be with a value that is written in the file.
pub fn headers(
    loader: &mut Loader<'_>,
    key: &Definition,
    given: BTreeMap<String, Given<HeaderValue>>,
    check: fn(name: &str, is_literal: bool) -> Result<(), &'static str>,
) -> Vec<Header> {
    let mut headers = Vec::new();
    for (name, Given { value, origin }) in given {
        let key = path(&key.path(), &name);
        let is_literal = matches!(value, HeaderValue::Literal(_));
        if let Err(message) = check(&name, is_literal) {
            loader.report_path(origin, key, message, None);
            continue;
        }
        let (value, holder) = match value {
            HeaderValue::Literal(value) => (value, None),
            HeaderValue::HeldBy(value) => {
                match secret_at(loader, key.clone(), Given { value, origin }) {
                    Some(held) => (held.content, Some(held.holder)),
                    None => continue,
                }
            }
        };
        if value.reveal().chars().any(char::is_control) {
            loader.report_path(origin, key, "the value has a control character", None);
            continue;
        }
        headers.push(Header {
            name,
            value,
            holder,
        });
    }
    headers
}

/// Returns headers as the file writes them.
pub fn effective(headers: &[Header]) -> String {
    let headers: Vec<String> = headers.iter().map(written).collect();
    inline(&headers)
}

fn written(header: &Header) -> String {
    let value = match &header.holder {
        Some(by) => holder(by),
        None if may_be_secret(&header.name) => quoted(MASKED).to_string(),
        None => quoted(header.value.reveal()).to_string(),
    };
    format!("{} = {value}", quoted(&header.name))
}

/// Returns true if a value under this name may be a secret, although it was written where secrets do not belong.
fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "auth", "cred", "key", "pass", "secret", "session", "sign", "token",
    ];
    words.iter().any(|word| name.contains(word))
}

/// Returns a holder as the file writes it.
pub fn holder(holder: &Holder) -> String {
    let (kind, name) = holder.parts();
    inline(&[format!("{kind} = {}", quoted(name))])
}
