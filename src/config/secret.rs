//! Secrets and certificates, which the configuration names by what holds them: a file, an environment variable, or
//! a credential from systemd. No message repeats what is held.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use websub::secret::Secret;

use crate::config::definition::Definition;
use crate::config::holder::Holder;
use crate::config::loader::Loader;
use crate::config::origin::Given;

const MAX_SECRET: u64 = 64 << 10;
/// A bundle of all the authorities that a system trusts has a few hundred.
const MAX_PEM: u64 = 4 << 20;

/// A secret or a certificate, with its holder, which is no secret. The path of a file is absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldSecret {
    pub holder: Holder,
    pub content: Secret,
}

impl HeldSecret {
    pub fn reveal(&self) -> &str {
        self.content.reveal()
    }
}

/// Reads the one line of text that a holder has.
pub fn secret(
    loader: &mut Loader<'_>,
    key: &Definition,
    holder: Given<Holder>,
) -> Option<HeldSecret> {
    secret_at(loader, key.path(), holder)
}

/// Reads the secret of a value below a key.
pub fn secret_at(
    loader: &mut Loader<'_>,
    path: String,
    holder: Given<Holder>,
) -> Option<HeldSecret> {
    let origin = holder.origin;
    let held = content(loader, holder, MAX_SECRET).and_then(|(name, holder, content)| {
        let line = content.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            return Err(format!("{name} is empty"));
        }
        if line.chars().any(char::is_control) {
            return Err(format!(
                "{name} has more than one line, or control characters"
            ));
        }
        let content = Secret::new(line);
        Ok(HeldSecret { holder, content })
    });
    held.map_err(|message| loader.report_path(origin, path, message, None))
        .ok()
}

/// Reads what a holder has, in which there must be a block of this kind.
pub fn pem(
    loader: &mut Loader<'_>,
    key: &Definition,
    holder: Given<Holder>,
    kind: &str,
) -> Option<HeldSecret> {
    let origin = holder.origin;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(kind);
    let held = content(loader, holder, MAX_PEM).and_then(|(name, holder, content)| {
        if !content.lines().any(begins) {
            return Err(format!("{name} has no -----BEGIN … {kind} line"));
        }
        let content = Secret::new(content);
        Ok(HeldSecret { holder, content })
    });
    held.map_err(|message| loader.report(origin, key, message))
        .ok()
}

/// Returns the name of the holder in messages, the holder, and its content, which may have `max` bytes.
fn content(
    loader: &Loader<'_>,
    holder: Given<Holder>,
    max: u64,
) -> Result<(String, Holder, String), String> {
    match holder.value {
        Holder::File(path) => {
            let full = loader.absolute(holder.origin, Path::new(&path))?;
            let content = read(&full, max)?;
            let holder = Holder::File(full.display().to_string());
            Ok((path, holder, content))
        }
        Holder::Env(name) => {
            let content = variable(loader, &name, max)?;
            Ok((format!("${name}"), Holder::Env(name), content))
        }
        Holder::Credential(name) => {
            let content = read(&credential(loader, &name)?, max)?;
            let shown = format!("the credential {name}");
            Ok((shown, Holder::Credential(name), content))
        }
    }
}

fn read(path: &Path, max: u64) -> Result<String, String> {
    let mut content = String::new();
    match File::open(path).and_then(|file| file.take(max + 1).read_to_string(&mut content)) {
        Ok(length) if length as u64 <= max => Ok(content),
        Ok(_) => Err(format!(
            "{} is larger than {} KiB",
            path.display(),
            max >> 10
        )),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

fn variable(loader: &Loader<'_>, name: &str, max: u64) -> Result<String, String> {
    let Some(value) = loader.variable(name) else {
        return Err(format!(
            "the environment variable {name} is not set, or empty"
        ));
    };
    match value.to_str() {
        Some(value) if value.len() as u64 <= max => Ok(value.to_owned()),
        Some(_) => Err(format!("${name} is larger than {} KiB", max >> 10)),
        None => Err(format!("${name} is not UTF-8")),
    }
}

/// Returns the path of a credential that systemd gives.
fn credential(loader: &Loader<'_>, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(format!(
            "\"{name}\" cannot name a credential: write the name that LoadCredential= gives it"
        ));
    }
    let given = format!("put LoadCredential={name}:/path/to/it into the service's unit");
    let Some(directory) = loader.variable("CREDENTIALS_DIRECTORY") else {
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
