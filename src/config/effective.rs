//! The effective configuration as a file: every key that has a value, and no secret.

use std::fmt::{self, Display};

use toml::Value;

use crate::config::definition::{Definition, Kind};
use crate::config::state_dir::STATE_DIR;
use crate::config::{Config, broker, channel, embedded_hub, hub, server, source, window};

/// A comment on the value of a key. The number says in which of the tables of its name the key is, from 0.
pub type Comment<'a> = &'a dyn Fn(&Definition, usize) -> Option<String>;

impl Config {
    /// Returns TOML that gives this configuration when it is read again, unless a secret in it is masked. A secret that
    /// is held elsewhere is named by its holder.
    pub fn effective(&self) -> String {
        self.effective_with(&|_, _| None)
    }

    /// As [`Config::effective`], with comments behind values.
    pub fn effective_with(&self, comment: Comment<'_>) -> String {
        let mut page = Page::new(comment);
        page.key(&STATE_DIR.definition, quoted(self.state_dir.display()));
        page.table(&server::SERVER, 0);
        server::effective(&mut page, &self.server);
        for (position, settings) in self.sources.iter().enumerate() {
            page.table(&source::SOURCE, position);
            source::effective(&mut page, settings);
        }
        page.table(&window::WINDOW, 0);
        window::effective(&mut page, &self.window);
        page.table(&embedded_hub::EMBEDDED_HUB, 0);
        embedded_hub::effective(&mut page, self.embedded_hub.as_ref());
        for (position, external) in self.hubs.iter().enumerate() {
            page.table(&hub::HUB, position);
            hub::effective(&mut page, external);
        }
        for (position, settings) in self.brokers.iter().enumerate() {
            page.table(&broker::BROKER, position);
            broker::effective(&mut page, settings);
        }
        for (position, plan) in self.channels.iter().enumerate() {
            page.table(&channel::CHANNEL, position);
            channel::effective(&mut page, plan);
        }
        page.text
    }
}

/// The file as it is written.
pub struct Page<'a> {
    pub text: String,
    entry: usize,
    comment: Comment<'a>,
}

impl fmt::Debug for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

impl<'a> Page<'a> {
    pub fn new(comment: Comment<'a>) -> Page<'a> {
        Page {
            text: String::new(),
            entry: 0,
            comment,
        }
    }

    pub fn table(&mut self, key: &Definition, entry: usize) {
        self.entry = entry;
        self.text.push_str(&format!("\n{}\n", header(key)));
    }

    pub fn key(&mut self, key: &Definition, value: impl Display) {
        let comment = (self.comment)(key, self.entry).map(|comment| format!("  # {comment}"));
        let comment = comment.unwrap_or_default();
        self.text
            .push_str(&format!("{} = {value}{comment}\n", key.name));
    }
}

/// Returns the line that begins a table.
pub fn header(key: &Definition) -> String {
    match key.kind {
        Kind::Tables(_) => format!("[[{}]]", key.name),
        _ => format!("[{}]", key.name),
    }
}

/// Returns a text as TOML writes it.
pub fn quoted(text: impl Display) -> Value {
    Value::String(text.to_string())
}

/// Returns a size with the largest unit that divides it.
pub fn bytes(size: u64) -> Value {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .iter()
        .find(|(shift, _)| size.is_multiple_of(1 << shift));
    let (shift, unit) = unit.unwrap_or(&(0, "B"));
    quoted(format_args!("{}{unit}", size >> shift))
}

pub fn list(texts: impl IntoIterator<Item = impl Display>) -> Value {
    Value::Array(texts.into_iter().map(quoted).collect())
}

/// Returns a table in one line.
pub fn inline(pairs: &[String]) -> String {
    match pairs {
        [] => "{}".to_owned(),
        pairs => format!("{{ {} }}", pairs.join(", ")),
    }
}

/// Returns the word for one of a few choices.
pub fn word<T: Copy + PartialEq>(choices: &[(&'static str, T)], choice: T) -> &'static str {
    let written = choices.iter().find(|(_, known)| *known == choice);
    written.map_or("", |(word, _)| *word)
}
