//! Values of the command line, or the environment, that count before the file.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use crate::config::file::ConfigFile;
use crate::config::log::{LogFormat, LogLevel, word};

/// One field per flag; a flag that was not given leaves the file's value, or its default.
///
/// `root` and `url` together stand for all `[[source]]` entries: one source named `main`, which keeps the
/// other settings of a source of that name in the file. `hub` stands for all `[[hub]]` entries, and keeps the
/// settings of the one with that URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub root: Option<PathBuf>,
    pub url: Option<String>,
    pub hub: Option<String>,
    pub state_dir: Option<PathBuf>,
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
    pub public_url: Option<String>,
    pub log_level: Option<LogLevel>,
    pub log_format: Option<LogFormat>,
}

impl Overrides {
    /// Puts the flags in the place of what the file says. Paths in them are relative to the current directory.
    pub(crate) fn apply(&self, file: &mut ConfigFile<'_>) {
        let environment = file.environment;
        let absolute = |path: &Path| environment.absolute(path).to_string_lossy().into_owned();
        let text = |text: String| DeValue::String(text.into());
        if let Some(path) = &self.state_dir {
            file.set("state_dir", "--state-dir", text(absolute(path)));
        }
        for (key, flag, given) in [
            ("server.listen", "--listen", &self.listen),
            ("server.public_url", "--public-url", &self.public_url),
            ("server.admin_listen", "--admin-listen", &self.admin_listen),
        ] {
            let Some(given) = given else { continue };
            let socket = given.strip_prefix("unix:").map(Path::new);
            let socket = socket.map(|path| format!("unix:{}", absolute(path)));
            file.set(key, flag, text(socket.unwrap_or_else(|| given.clone())));
        }
        if let Some(level) = self.log_level {
            file.set("log.level", "--log-level", text(word(level)));
        }
        if let Some(format) = self.log_format {
            file.set("log.format", "--log-format", text(word(format)));
        }
        if let (Some(root), Some(url)) = (&self.root, &self.url) {
            file.select("source", ("name", "main"), &["path", "url", "mount"]);
            file.set("source.0.name", "--root --url", text("main".to_owned()));
            file.set("source.0.path", "--root", text(absolute(root)));
            file.set("source.0.url", "--url", text(url.clone()));
            file.flags.push(("source.0.mount", "--root --url"));
            if file.path.is_none() {
                // C9: the hub is our own, so that nobody else gets traffic that was not asked for.
                let key = "source.0.change_notifications";
                file.set(key, "--root", DeValue::Boolean(true));
            }
        }
        if let Some(url) = &self.hub {
            file.select("hub", ("url", url), &[]);
            file.set("hub.0.url", "--hub", text(url.clone()));
        }
    }
}
