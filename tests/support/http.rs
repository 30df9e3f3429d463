//! Requests over HTTP, as servers of tests read them.

use std::collections::BTreeMap;
use std::io::BufRead;

use url::form_urlencoded;

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    /// By names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// Reads the next request of a connection. Returns nothing once that is closed.
    pub fn read(reader: &mut impl BufRead) -> Option<Request> {
        let mut line = || {
            let mut line = String::new();
            let read = reader.read_line(&mut line).ok()?;
            (read > 0).then(|| line.trim_end().to_owned())
        };
        let first = line()?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map(|length| length.parse());
        let mut body = vec![0; length.and_then(Result::ok).unwrap_or_default()];
        reader.read_exact(&mut body).ok()?;
        Some(Request {
            method,
            target,
            headers,
            body,
        })
    }

    /// The last parameter of the query with that name: a hub's come after a callback's own.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let named = form_urlencoded::parse(query.as_bytes()).filter(|(field, _)| field == name);
        named.last().map(|(_, value)| value.into_owned())
    }
}
