//! Secrets and certificates, which the configuration names by what holds them: a file, an environment variable, or
//! a credential from systemd. No message repeats what is held.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::announce::delivery::secret::Secret;
use crate::config::raw::held::Held;
pub use crate::config::raw::held::Holder;
use crate::config::reading::{Given, Reading};

const MAX_SECRET: u64 = 64 << 10;
/// A bundle of all the authorities that a system trusts has a few hundred.
const MAX_PEM: u64 = 4 << 20;

/// A secret or a certificate, with what holds it: that is no secret. The path of a file is absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub by: Holder,
    pub content: Secret,
}

impl Kept {
    pub fn reveal(&self) -> &str {
        self.content.reveal()
    }
}

impl From<Held> for Holder {
    fn from(held: Held) -> Holder {
        match held {
            Held::Path(path) => Holder::File(path),
            Held::By(holder) => holder,
        }
    }
}

/// The one line of text that is held.
pub fn secret(reading: &mut Reading<'_>, key: &str, holder: Given<Holder>) -> Option<Kept> {
    let origin = holder.origin;
    let (name, by, content) = content(reading, key, holder, MAX_SECRET)?;
    let line = content.trim_end_matches(['\r', '\n']);
    if line.is_empty() {
        reading.report(origin, key, format!("{name} is empty"));
        return None;
    }
    if line.chars().any(char::is_control) {
        let message = format!("{name} has more than one line, or control characters");
        reading.report(origin, key, message);
        return None;
    }
    Some(Kept {
        by,
        content: Secret::new(line),
    })
}

/// What is held, if there is a block of this kind in it.
pub fn pem(reading: &mut Reading<'_>, key: &str, held: Given<Held>, kind: &str) -> Option<Kept> {
    let origin = held.origin;
    let (name, by, content) = content(reading, key, held.map(Holder::from), MAX_PEM)?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(kind);
    if !content.lines().any(begins) {
        let message = format!("{name} has no -----BEGIN … {kind} line");
        reading.report(origin, key, message);
        return None;
    }
    Some(Kept {
        by,
        content: Secret::new(content),
    })
}

/// How messages name the holder, the holder, and the content of it, which has at most so many bytes.
fn content(
    reading: &mut Reading<'_>,
    key: &str,
    holder: Given<Holder>,
    most: u64,
) -> Option<(String, Holder, String)> {
    let origin = holder.origin;
    let (name, by, read) = match holder.value {
        Holder::File(path) => {
            let full = reading.path(key, origin, Path::new(&path))?;
            let by = Holder::File(full.display().to_string());
            (path, by, read(&full, most))
        }
        Holder::Env(name) => {
            let read = variable(reading, &name, most);
            (format!("${name}"), Holder::Env(name), read)
        }
        Holder::Credential(name) => {
            let read = credential(reading, &name).and_then(|path| read(&path, most));
            let by = Holder::Credential(name.clone());
            (format!("the credential {name}"), by, read)
        }
    };
    read.map(|content| (name, by, content))
        .map_err(|message| reading.report(origin, key, message))
        .ok()
}

fn read(path: &Path, most: u64) -> Result<String, String> {
    let mut content = String::new();
    match File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut content)) {
        Ok(length) if length as u64 <= most => Ok(content),
        Ok(_) => Err(format!(
            "{} is larger than {} KiB",
            path.display(),
            most >> 10
        )),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

fn variable(reading: &Reading<'_>, name: &str, most: u64) -> Result<String, String> {
    let Some(value) = reading.variable(name) else {
        return Err(format!(
            "the environment variable {name} is not set, or empty"
        ));
    };
    match value.to_str() {
        Some(value) if value.len() as u64 <= most => Ok(value.to_owned()),
        Some(_) => Err(format!("${name} is larger than {} KiB", most >> 10)),
        None => Err(format!("${name} is not UTF-8")),
    }
}

/// Where systemd has put a credential.
fn credential(reading: &Reading<'_>, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(format!(
            "\"{name}\" cannot name a credential: write the name that LoadCredential= gives it"
        ));
    }
    let given = format!("put LoadCredential={name}:/path/to/it into the service's unit");
    let Some(directory) = reading.variable("CREDENTIALS_DIRECTORY") else {
        return Err(format!(
            "there are no credentials, because $CREDENTIALS_DIRECTORY is not set: {given}"
        ));
    };
    let path = Path::new(directory).join(name);
    match path.try_exists() {
        Ok(false) => Err(format!(
            "there is no credential {name} in {}: {given}",
            directory.display()
        )),
        _ => Ok(path),
    }
}
