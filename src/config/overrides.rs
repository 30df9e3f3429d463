//! Values of the command line, or the environment, that count before the file.

use std::path::{Path, PathBuf};

use clap::Args;
use toml::de::DeValue;

use crate::config::file::ConfigFile;
use crate::config::log::{LogFormat, LogLevel, word};

/// Flags that stand for keys; one that was not given leaves the file's value, or its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Overrides {
    #[command(flatten)]
    pub source: SourceOptions,

    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// Flags that name a Source, in place of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct SourceOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// The hub to notify; replaces the file's hubs [default: the embedded hub]
    #[arg(long, value_name = "URI")]
    pub hub: Option<String>,

    /// The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// The public URL of --listen [default: http://LISTEN/]
    #[arg(long, value_name = "URI")]
    pub public_url: Option<String>,
}

/// Flags that name a tree, in place of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TreeOptions {
    /// The directory that is published; replaces the file's sources by one named "main"
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// The URI that --root is published as [default: as its Capability Lists name it]
    #[arg(long, value_name = "URI")]
    pub url: Option<String>,

    #[command(flatten)]
    pub state: StateOptions,
}

/// The flag that names the state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StateOptions {
    /// The directory of the state file
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Flags of daemons alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DaemonOptions {
    /// The address to serve health, metrics and the status page at [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,

    /// The format of log lines [default: human]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// The lowest level to log, to standard error [default: info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

impl StateOptions {
    pub fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::default();
        overrides.source.tree.state = self.clone();
        overrides
    }
}

impl TreeOptions {
    pub fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::default();
        overrides.source.tree = self.clone();
        overrides
    }
}

impl SourceOptions {
    pub fn overrides(&self) -> Overrides {
        Overrides {
            source: self.clone(),
            ..Overrides::default()
        }
    }
}

impl Overrides {
    /// Puts the flags in the place of what the file says. Paths in them are relative to the current directory.
    ///
    /// `root` and `url` together stand for all `[[source]]` entries: one source named `main`, which keeps the other settings
    /// of a source of that name in the file. `hub` stands for all `[[hub]]` entries, and keeps the settings of the one with
    /// that URL.
    pub(crate) fn apply(&self, file: &mut ConfigFile<'_>) {
        let Overrides { source, daemon } = self;
        let tree = &source.tree;
        let environment = file.environment;
        let absolute = |path: &Path| environment.absolute(path).to_string_lossy().into_owned();
        let text = |text: String| DeValue::String(text.into());
        if let Some(path) = &tree.state.state_dir {
            file.set("state_dir", "--state-dir", text(absolute(path)));
        }
        for (key, flag, given) in [
            ("server.listen", "--listen", &source.listen),
            ("server.public_url", "--public-url", &source.public_url),
            (
                "server.admin_listen",
                "--admin-listen",
                &daemon.admin_listen,
            ),
        ] {
            let Some(given) = given else { continue };
            let socket = given.strip_prefix("unix:").map(Path::new);
            let socket = socket.map(|path| format!("unix:{}", absolute(path)));
            file.set(key, flag, text(socket.unwrap_or_else(|| given.clone())));
        }
        if let Some(level) = daemon.log_level {
            file.set("log.level", "--log-level", text(word(level)));
        }
        if let Some(format) = daemon.log_format {
            file.set("log.format", "--log-format", text(word(format)));
        }
        if let (Some(root), Some(url)) = (&tree.root, &tree.url) {
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
        if let Some(url) = &source.hub {
            file.select("hub", ("url", url), &[]);
            file.set("hub.0.url", "--hub", text(url.clone()));
        }
    }
}
