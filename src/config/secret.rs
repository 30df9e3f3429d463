//! Secrets and certificates, which the configuration names by what holds them: a file, an environment variable, or
//! a credential from systemd. No message repeats what is held.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use websub::secret::{MASKED, Secret};

use crate::config::file::{Checked, ConfigTree, TablePlace};

/// Length from which the name of a file that is not there may be a secret: that of a digest of 128 bits.
const SECRET_LIKE: usize = 32;
const MAX_SECRET: u64 = 64 << 10;
/// A bundle of all the authorities that a system trusts has a few hundred.
const MAX_PEM: u64 = 4 << 20;

/// The holder of a secret or of certificates: where it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretLocation {
    /// A file, by its path.
    File(PathBuf),
    /// An environment variable, by its name.
    Env(String),
    /// A credential that systemd gives the service, by its name.
    Credential(String),
}

/// A text with its holder, if it is not written in the configuration itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "TextOrHolder", into = "TextOrHolder")]
pub struct ConfiguredSecret {
    /// The path of a file is absolute.
    pub holder: Option<SecretLocation>,
    pub content: Secret,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a text, { file = \"...\" }, { env = \"...\" } or { credential = \"...\" }"
)]
enum TextOrHolder {
    Text(String),
    Holder(SecretLocation),
}

impl From<TextOrHolder> for ConfiguredSecret {
    fn from(written: TextOrHolder) -> ConfiguredSecret {
        let (holder, text) = match written {
            TextOrHolder::Text(text) => (None, text),
            TextOrHolder::Holder(holder) => (Some(holder), String::new()),
        };
        let content = Secret::from(text);
        ConfiguredSecret { holder, content }
    }
}

/// A secret that is held elsewhere is named by its holder.
impl From<ConfiguredSecret> for TextOrHolder {
    fn from(held: ConfiguredSecret) -> TextOrHolder {
        match held.holder {
            Some(holder) => TextOrHolder::Holder(holder),
            None => TextOrHolder::Text(held.content.reveal().to_owned()),
        }
    }
}

impl ConfiguredSecret {
    /// Returns a text that is written in the configuration.
    pub fn from_text(text: impl Into<String>) -> ConfiguredSecret {
        TextOrHolder::Text(text.into()).into()
    }

    /// Reads the one line of text that the holder has, if there is one.
    pub(crate) fn read_holder(&mut self, table: &TablePlace<'_>, key: &str) -> Checked {
        let Some(holder) = &mut self.holder else {
            return Ok(());
        };
        let read = holder.content(table.file, MAX_SECRET);
        let (name, content) = read.map_err(|message| table.error(key, message))?;
        let line = content.trim_end_matches(['\r', '\n']);
        table.refuse_if(line.is_empty(), key, format_args!("{name} is empty"))?;
        let message = format_args!("{name} has more than one line, or control characters");
        table.refuse_if(line.chars().any(char::is_control), key, message)?;
        self.content = Secret::new(line);
        Ok(())
    }

    /// Takes a text for the path of a file.
    fn treat_as_path(&mut self) -> &mut SecretLocation {
        let file = || SecretLocation::File(self.content.reveal().into());
        self.holder.get_or_insert_with(file)
    }
}

pub fn content_of(held: &Option<ConfiguredSecret>) -> Option<Secret> {
    held.as_ref().map(|held| held.content.clone())
}

/// Reads the secret of a key whose text is the path of a file.
pub fn read_secret_file(
    table: &TablePlace<'_>,
    key: &str,
    held: &mut Option<ConfiguredSecret>,
) -> Checked {
    let Some(held) = held else { return Ok(()) };
    held.treat_as_path();
    held.read_holder(table, key)
}

/// Reads the password of a user name, the certificates and the key that a table names. Of user name and password, and of
/// client certificate and key, it has both or neither.
pub fn read_credentials(
    table: &TablePlace<'_>,
    username: &Option<String>,
    [password, cert, key, ca]: [&mut Option<ConfiguredSecret>; 4],
) -> Checked {
    let has_name = username.is_some();
    for (one, has_one, other, has_other) in [
        ("username", has_name, "password_file", password.is_some()),
        ("client_cert", cert.is_some(), "client_key", key.is_some()),
    ] {
        let (given, missing) = if has_one { (one, other) } else { (other, one) };
        let message = format_args!("it needs {missing} too");
        table.refuse_if(has_one != has_other, given, message)?;
    }
    read_secret_file(table, "password_file", password)?;
    for (key, held, kind) in [
        ("client_cert", cert, "CERTIFICATE-----"),
        ("client_key", key, "PRIVATE KEY-----"),
        ("ca_file", ca, "CERTIFICATE-----"),
    ] {
        let Some(held) = held else { continue };
        let read = held.treat_as_path().content(table.file, MAX_PEM);
        let (name, content) = read.map_err(|message| table.error(key, message))?;
        let mut lines = content.lines().map(str::trim_end);
        let has_pem = lines.any(|line| line.starts_with("-----BEGIN ") && line.ends_with(kind));
        let message = format_args!("{name} has no -----BEGIN … {kind} line");
        table.refuse_if(!has_pem, key, message)?;
        held.content = Secret::new(content);
    }
    Ok(())
}

/// Reads the headers that a table has. `check` returns an error for a name that cannot be one, or must not
/// be with a value that is written in the file.
pub fn read_headers(
    table: &TablePlace<'_>,
    headers: &mut BTreeMap<String, ConfiguredSecret>,
    check: fn(name: &str, is_literal: bool) -> Result<(), &'static str>,
) -> Checked {
    for (name, held) in headers {
        let key = format!("headers.{name}");
        check(name, held.holder.is_none()).map_err(|message| table.error(&key, message))?;
        held.read_holder(table, &key)?;
        let has_control = held.content.reveal().chars().any(char::is_control);
        table.refuse_if(has_control, &key, "the value has a control character")?;
    }
    Ok(())
}

/// Hides headers that may be secrets, although they were written where secrets do not belong.
pub fn mask_headers(headers: &mut BTreeMap<String, ConfiguredSecret>) {
    let words = [
        "auth", "cred", "key", "pass", "secret", "session", "sign", "token",
    ];
    for (name, held) in headers {
        let name = name.to_ascii_lowercase();
        if held.holder.is_none() && words.iter().any(|word| name.contains(word)) {
            held.content = Secret::new(MASKED);
        }
    }
}

impl SecretLocation {
    /// Returns its name in messages, and its content, which may have `max` bytes.
    fn content(&mut self, file: &ConfigTree<'_>, max: u64) -> Result<(String, String), String> {
        match self {
            SecretLocation::File(path) if path.as_os_str().is_empty() => {
                Err("it is empty".to_owned())
            }
            SecretLocation::File(path) => {
                let name = path.display().to_string();
                *path = file.resolve_path(path);
                // No message repeats a secret that stands in the place of its file.
                if name.len() >= SECRET_LIKE && !name.contains('/') && !path.exists() {
                    let message = "no such file; if this is the secret itself, write it into a file, and name that here";
                    return Err(message.to_owned());
                }
                Ok((name, read_file(path, max)?))
            }
            SecretLocation::Env(name) => {
                let value = file
                    .environment
                    .variable(name)
                    .ok_or(format!(
                        "the environment variable {name} is not set, or empty"
                    ))?
                    .to_str()
                    .ok_or(format!("${name} is not UTF-8"))?;
                if value.len() as u64 > max {
                    return Err(format!("${name} is larger than {} KiB", max >> 10));
                }
                Ok((format!("${name}"), value.to_owned()))
            }
            SecretLocation::Credential(name) => {
                let content = read_file(&credential_path(file, name)?, max)?;
                Ok((format!("the credential {name}"), content))
            }
        }
    }
}

fn read_file(path: &Path, max: u64) -> Result<String, String> {
    let (mut content, name) = (String::new(), path.display());
    match File::open(path).and_then(|file| file.take(max + 1).read_to_string(&mut content)) {
        Ok(length) if length as u64 <= max => Ok(content),
        Ok(_) => Err(format!("{name} is larger than {} KiB", max >> 10)),
        Err(error) => Err(format!("cannot read {name}: {error}")),
    }
}

/// Returns the path of a credential that systemd gives.
fn credential_path(file: &ConfigTree<'_>, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(format!(
            "\"{name}\" cannot name a credential: write the name that LoadCredential= gives it"
        ));
    }
    let given = format!("put LoadCredential={name}:/path/to/it into the service's unit");
    let variable = file.environment.variable("CREDENTIALS_DIRECTORY");
    let directory = variable.ok_or(format!(
        "there are no credentials, because $CREDENTIALS_DIRECTORY is not set: {given}"
    ))?;
    let (path, directory) = (Path::new(directory).join(name), directory.display());
    if path.try_exists().is_ok_and(|exists| !exists) {
        return Err(format!(
            "there is no credential {name} in {directory}: {given}"
        ));
    }
    Ok(path)
}
