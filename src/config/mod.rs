//! What the operator wants: the file as written (`raw`), and [`Config`], which holds only valid values.
//!
//! A flag counts before its environment variable, that before the file, the file before the default. The
//! checks read the file and the secrets and certificates that it names, resolve the links in its directories, and read
//! nothing else of the environment.

pub mod address;
pub mod admin_address;
pub mod channel;
pub mod duration;
pub mod embedded_hub;
pub mod error;
mod globs;
pub mod http;
pub mod hub;
pub mod in_force;
mod mount;
pub mod overrides;
mod raw;
mod reading;
pub mod schema;
pub mod secret;
pub mod server;
pub mod source;
pub mod state_dir;
mod suggestion;
mod syntax;
#[cfg(test)]
mod tests;
mod web_uri;

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::announce::plan::{ChannelPlan, HubPlan, Mode, Plan, Replaces, WindowPlan};
use crate::config::channel::Surroundings;
use crate::config::embedded_hub::EmbeddedHub;
use crate::config::error::ConfigError;
use crate::config::hub::HubSettings;
use crate::config::overrides::Overrides;
use crate::config::reading::{Given, Origin, Reading, in_file};
use crate::config::server::Server;
use crate::config::source::Source;
use crate::resourcesync::uri::{Hub, Uri};

/// Where systemd keeps the credentials of the service while it runs.
const CREDENTIALS_OF_SERVICE: &str = "/run/credentials/rsnotify.service";
/// The largest payload (R21).
const MAX_BYTES: usize = 1024 * 1024;

/// The configuration in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file that was read, if any; absolute if it was named so.
    pub file: Option<PathBuf>,
    pub state_dir: PathBuf,
    pub server: Server,
    /// At least one; their mounts are numbered in order over all of them.
    pub sources: Vec<Source>,
    /// The hubs outside this process.
    pub hubs: Vec<HubSettings>,
    pub embedded_hub: Option<EmbeddedHub>,
    pub channels: Vec<ChannelPlan>,
    pub window: WindowPlan,
}

impl Config {
    /// Reads the file at `path`, or the default one if nothing else says what to watch, under what the flags
    /// say.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Config, ConfigError> {
        Config::load_in(&Environment::of_this_process(), path, overrides)
    }

    fn load_in(
        environment: &Environment,
        path: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<Config, ConfigError> {
        let Some(path) = environment.file(path, overrides) else {
            if overrides.root.is_none() && overrides.url.is_none() {
                return Err(ConfigError::Nothing {
                    default: environment.default_file.clone(),
                });
            }
            return checked(environment, None, overrides);
        };
        let text = &read(path)?;
        checked(environment, Some(reading::Source { path, text }), overrides)
    }

    /// What the engine is told. `public_url` is what the public listener is reached as:
    /// [`Server::public_url_at`] knows once it is bound.
    pub fn plan(&self, public_url: &Uri) -> Plan {
        let outside = self.hubs.iter().map(|settings| HubPlan {
            hub: settings.hub.clone(),
            mode: settings.mode,
            replaces: settings.replaces.clone(),
        });
        let embedded = self.embedded_hub.iter().map(|embedded| HubPlan {
            hub: embedded.hub(public_url),
            mode: Mode::Embedded,
            replaces: Replaces::Automatic,
        });
        Plan {
            sources: self
                .sources
                .iter()
                .map(|source| source.plan.clone())
                .collect(),
            hubs: outside.chain(embedded).collect(),
            channels: self.channels.clone(),
            public_url: public_url.clone(),
            window: self.window.clone(),
            topic_window: self.server.topic_window,
            retired_topic: self.server.retired_topic,
        }
    }
}

/// What the process finds around it, as far as the configuration depends on it.
struct Environment {
    default_file: PathBuf,
    current_dir: PathBuf,
    state_directory: Option<OsString>,
    xdg_state_home: Option<OsString>,
    home: Option<OsString>,
    /// All variables: the file may say that one holds a secret.
    variables: HashMap<OsString, OsString>,
}

impl fmt::Debug for Environment {
    /// Without the variables, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

impl Environment {
    fn of_this_process() -> Environment {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        Environment {
            default_file: PathBuf::from("/etc/rsnotify/config.toml"),
            current_dir: env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            state_directory: variable("STATE_DIRECTORY"),
            xdg_state_home: variable("XDG_STATE_HOME"),
            home: variable("HOME"),
            variables: variables(),
        }
    }

    /// The file to read: the one at `path`, or the default one if nothing else says what to watch.
    fn file<'a>(&'a self, path: Option<&'a Path>, overrides: &Overrides) -> Option<&'a Path> {
        // One that cannot be looked at is reported when it is read.
        let is_there = || self.default_file.try_exists().unwrap_or(true);
        let says_what = overrides.root.is_some() || overrides.url.is_some();
        path.or_else(|| (!says_what && is_there()).then_some(self.default_file.as_path()))
    }

    fn default_state_dir(&self) -> Option<PathBuf> {
        // systemd separates several state directories by colons.
        let given = self
            .state_directory
            .as_ref()
            .and_then(|list| env::split_paths(list).next());
        let xdg = || {
            self.xdg_state_home
                .as_ref()
                .map(|home| Path::new(home).join("rsnotify"))
        };
        let home = || {
            self.home
                .as_ref()
                .map(|home| Path::new(home).join(".local/state/rsnotify"))
        };
        given.or_else(xdg).or_else(home)
    }
}

/// The environment variables. Whoever asks about the service, such as `rsnotify status`, reads the same credentials as it
/// does, if they may: systemd keeps them where only the service is told.
fn variables() -> HashMap<OsString, OsString> {
    let mut variables: HashMap<_, _> = env::vars_os().collect();
    if Path::new(CREDENTIALS_OF_SERVICE).is_dir() {
        variables
            .entry("CREDENTIALS_DIRECTORY".into())
            .or_insert_with(|| CREDENTIALS_OF_SERVICE.into());
    }
    variables
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

fn checked(
    environment: &Environment,
    file: Option<reading::Source<'_>>,
    overrides: &Overrides,
) -> Result<Config, ConfigError> {
    let (raw, slips) = match file {
        Some(file) => syntax::parse(file).map_err(|problems| ConfigError::Invalid { problems })?,
        None => (raw::File::default(), Vec::new()),
    };
    let reading = &mut Reading::new(file, environment, slips);
    let state_dir = state_dir(reading, environment, raw.state_dir, overrides);
    let server = server::server(reading, raw.server, overrides);
    let sources = source::sources(reading, raw.source, overrides);
    refuse_state_in_mount(reading, &state_dir, &sources);
    let state_dir = state_dir.value;
    let window = window(reading, raw.window);
    let has_hubs = !raw.hub.is_empty() || overrides.hub.is_some();
    let hubs = hub::hubs(reading, raw.hub, overrides);
    let others = embedded_hub::Others {
        has_hubs,
        // Whoever installs rsnotify writes a file; who tries it on this machine should not have to.
        is_trial: file.is_none() && server.is_on_this_machine(),
    };
    let embedded_hub = embedded_hub::embedded_hub(reading, raw.embedded_hub, &others);

    let public_url = server.known_public_url();
    let mounts = sources.iter().flat_map(|source| &source.plan.mounts);
    let mut prefixes: Vec<Uri> = mounts.map(|mount| mount.prefix.clone()).collect();
    prefixes.extend(public_url.clone());
    let mut known_hubs: Vec<Hub> = hubs.iter().map(|settings| settings.hub.clone()).collect();
    if let (Some(embedded), Some(public_url)) = (&embedded_hub, &public_url) {
        let embedded = embedded.hub(public_url);
        if known_hubs.contains(&embedded) {
            let message = format!("{embedded} is a [[hub]] and the embedded hub at once");
            reading.report(Origin::Absent, "hub.url", message);
        }
        known_hubs.push(embedded);
    }
    let surroundings = Surroundings {
        prefixes: &prefixes,
        hubs: &known_hubs,
        are_prefixes_known: !reading.is_misspelt(&[
            "public_url",
            "server",
            "source",
            "mount",
            "url",
        ]),
        are_hubs_known: !reading.is_misspelt(&["hub", "url", "embedded_hub", "path", "enabled"]),
    };
    let channels = channel::channels(reading, raw.channel, &surroundings);
    let config = Config {
        file: file.map(|file| file.path.to_owned()),
        state_dir,
        server,
        sources,
        hubs,
        embedded_hub,
        channels,
        window,
    };
    reading.finish(config)
}

fn state_dir(
    reading: &mut Reading<'_>,
    environment: &Environment,
    written: raw::Written<String>,
    overrides: &Overrides,
) -> Given<PathBuf> {
    let flag = overrides.state_dir.clone().map(|value| Given {
        value,
        origin: Origin::Flag("--state-dir"),
    });
    if let Some(given) = flag.or_else(|| written.map(in_file).map(|given| given.map(PathBuf::from)))
    {
        let path = reading.path("state_dir", given.origin, &given.value);
        return given.map(|_| path.unwrap_or_default());
    }
    let value = environment.default_state_dir().unwrap_or_else(|| {
        let message =
            "it is needed, because none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is set";
        reading.report_absence(&["state_dir"], Origin::Absent, "state_dir", message);
        PathBuf::new()
    });
    let origin = Origin::Absent;
    Given { value, origin }
}

/// The state would be watched as part of the tree, and published with it: subscribers' secrets lie in it.
fn refuse_state_in_mount(
    reading: &mut Reading<'_>,
    state_dir: &Given<PathBuf>,
    sources: &[Source],
) {
    if state_dir.value.as_os_str().is_empty() {
        return;
    }
    let resolved = resolved(&state_dir.value);
    let mut mounts = sources.iter().flat_map(|source| &source.plan.mounts);
    let around = mounts.find(|mount| {
        state_dir.value.starts_with(&mount.directory)
            || resolved.starts_with(self::resolved(&mount.directory))
    });
    if let Some(mount) = around {
        let message = format!(
            "{} lies inside the mount {}, where it would be watched, and published: put it elsewhere",
            state_dir.value.display(),
            mount.directory.display()
        );
        reading.report(state_dir.origin, "state_dir", message);
    }
}

/// The path with symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    path.ancestors()
        .find_map(|above| {
            let below = path.strip_prefix(above).ok()?;
            // An empty path below would add a slash.
            let real = above.canonicalize().ok()?;
            Some(match below.as_os_str().is_empty() {
                true => real,
                false => real.join(below),
            })
        })
        .unwrap_or_else(|| path.to_owned())
}

fn window(reading: &mut Reading<'_>, raw: raw::Window) -> WindowPlan {
    let place = |written: &raw::Written<String>| {
        written
            .as_ref()
            .map(|written| Origin::File(written.span().start))
    };
    let origin = place(&raw.quiet)
        .or(place(&raw.max_wait))
        .unwrap_or(Origin::Absent);
    let quiet = reading.duration("window.quiet", raw.quiet, Duration::from_secs(2));
    let max_wait = reading.duration("window.max_wait", raw.max_wait, Duration::from_secs(30));
    if quiet > max_wait && !reading.is_misspelt(&["quiet", "max_wait", "window"]) {
        let (quiet, max_wait) = (duration::display(quiet), duration::display(max_wait));
        let message = format!("{quiet} is longer than max_wait, {max_wait}");
        reading.report(origin, "window.quiet", message);
    }
    let max_entries = match raw.max_entries.map(in_file) {
        None => 1_000,
        Some(given) => match usize::try_from(given.value) {
            Ok(entries @ 1..=50_000) => entries,
            _ => {
                let message = format!("{} is not between 1 and 50000", given.value);
                reading.report(given.origin, "window.max_entries", message);
                1_000
            }
        },
    };
    WindowPlan {
        quiet,
        max_wait,
        hold: reading.duration("window.hold", raw.hold, Duration::from_secs(60)),
        max_entries,
        max_bytes: MAX_BYTES,
    }
}
