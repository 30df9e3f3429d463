//! The command line as an operator types it, and the exit codes it answers with.
//!
//! Every flag has one environment variable, `RSNOTIFY_` and the flag in capitals (a test compares them).

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cli::advertise::AdvertiseOptions;
use crate::cli::completions::CompletionsOptions;
use crate::cli::config::ConfigOptions;
use crate::cli::health::HealthOptions;
use crate::cli::man::ManOptions;
use crate::cli::outbox::OutboxCommand;
use crate::cli::scan::ScanOptions;
use crate::cli::snippet::SnippetOptions;
use crate::cli::subscriptions::SubscriptionsCommand;
use crate::config::overrides::Overrides;

/// Announces every change of a ResourceSync Source over WebSub, from the files it publishes.
#[derive(Debug, Parser)]
#[command(name = "rsnotify", version, arg_required_else_help = true)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,

    /// The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]
    #[arg(long, global = true, value_name = "FILE", env = "RSNOTIFY_CONFIG")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the tree and announce its changes, until stopped
    ///
    /// Reads the tree and writes only to the state directory. Hubs are told of each change, topics are served at --listen,
    /// health, metrics and the status page at --admin-listen. SIGHUP makes it read its configuration again, SIGTERM ends it
    /// as soon as requests in flight are done; what it has not told by then it tells after the next start.
    Run(RunOptions),
    /// Say what is wrong with the configuration, the tree, the machine, and the way to topics and hubs
    ///
    /// Nothing is bound, saved or told; topics and hubs are asked by requests that change nothing. A finding is something
    /// to put right and makes the exit status 1, a note does not.
    Check(CheckOptions),
    /// Print every document in the tree, and what it means for notifications
    ///
    /// One line for each: its state, its capability and form, its URI, and why. The states are announced (all hubs know
    /// it), pending (a hub is due it), held (it waits to be listed), missing (and not yet believed deleted), broken (its
    /// last good version counts), unrouted (it belongs to no set of resources, or to one that no hub of ours is told of),
    /// archived (an archive alone lists it), silent (an index or a manifest, which are never announced) and new (nothing was
    /// saved yet). A terminal shows how far the sweep of a large tree has come.
    Scan(ScanOptions),
    /// Believe that the documents of a source that are missing now are deleted
    Accept(AcceptOptions),
    /// Print how everything stands, and what is in trouble
    Status(AskOptions),
    /// Show what each hub is due, and act on a hub that does not take it
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Show who subscribes at the embedded hub, and end a subscription
    #[command(subcommand)]
    Subscriptions(SubscriptionsCommand),
    /// Subscribe to a topic and print its notifications as they arrive
    Listen(ListenOptions),
    /// Print what Capability Lists lack to advertise their channels, as patches, and how to subscribe
    Advertise(AdvertiseOptions),
    /// Ask the running daemon whether it is alive
    Health(HealthOptions),
    /// Print what a shell completes
    #[command(display_order = 900)]
    Completions(CompletionsOptions),
    /// Print the manual page, or write all of them to a directory
    #[command(display_order = 900)]
    Man(ManOptions),
    /// Print the configuration in force, with defaults and without secrets
    Config(ConfigOptions),
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Print the lines that make a web server in front pass topics and the embedded hub on
    Snippet(SnippetOptions),
}

/// The tree to work on, where no configuration file says so.
#[derive(Debug, Clone, Default, Args)]
pub struct TreeOptions {
    /// The directory that is published; replaces the file's sources by one named "main"
    #[arg(long, value_name = "DIR", env = "RSNOTIFY_ROOT")]
    pub root: Option<PathBuf>,

    /// What --root is published as [default: as its Capability Lists name it]
    #[arg(long, value_name = "URI", env = "RSNOTIFY_URL")]
    pub url: Option<String>,

    /// Where what was seen and told is kept
    #[arg(long, value_name = "DIR", env = "RSNOTIFY_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

impl TreeOptions {
    pub fn overrides(&self) -> Overrides {
        Overrides {
            root: self.root.clone(),
            url: self.url.clone(),
            state_dir: self.state_dir.clone(),
            ..Overrides::default()
        }
    }
}

/// Where topics and hubs are, where no configuration file says so.
#[derive(Debug, Clone, Default, Args)]
pub struct NetworkOptions {
    /// The hub to tell; replaces the file's hubs [default: the embedded hub]
    #[arg(long, value_name = "URI", env = "RSNOTIFY_HUB")]
    pub hub: Option<String>,

    /// Where topics and the embedded hub listen [default: 127.0.0.1:8400]
    #[arg(long, value_name = "ADDR", env = "RSNOTIFY_LISTEN")]
    pub listen: Option<String>,

    /// What --listen is reached as [default: http://LISTEN/]
    #[arg(long, value_name = "URI", env = "RSNOTIFY_PUBLIC_URL")]
    pub public_url: Option<String>,
}

impl NetworkOptions {
    pub fn overrides(&self, rest: Overrides) -> Overrides {
        Overrides {
            hub: self.hub.clone(),
            listen: self.listen.clone(),
            public_url: self.public_url.clone(),
            ..rest
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    /// Where health, metrics and the status page listen [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR", env = "RSNOTIFY_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,

    /// Print the requests that would be sent to hubs now; send nothing, save nothing
    #[arg(long, env = "RSNOTIFY_DRY_RUN", value_parser = FalseyValueParser::new())]
    pub dry_run: bool,

    /// How log lines are written
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "RSNOTIFY_LOG_FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,

    /// How much to log, to standard error
    #[arg(
        long,
        value_enum,
        value_name = "LEVEL",
        env = "RSNOTIFY_LOG_LEVEL",
        default_value = "info"
    )]
    pub log_level: LogLevel,
}

impl RunOptions {
    pub fn overrides(&self) -> Overrides {
        Overrides {
            admin_listen: self.admin_listen.clone(),
            ..self.network.overrides(self.tree.overrides())
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct CheckOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    /// Print each finding, instead of three of a kind and how many more
    #[arg(long, env = "RSNOTIFY_ALL", value_parser = FalseyValueParser::new())]
    pub all: bool,

    /// Check the configuration only: do not look at trees, machine, topics and hubs
    #[arg(long, env = "RSNOTIFY_NO_ENVIRONMENT", value_parser = FalseyValueParser::new())]
    pub no_environment: bool,

    /// Print JSON
    #[arg(long, env = "RSNOTIFY_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

impl CheckOptions {
    pub fn overrides(&self) -> Overrides {
        self.network.overrides(self.tree.overrides())
    }
}

#[derive(Debug, Clone, Args)]
pub struct AcceptOptions {
    /// The source's name, as configured
    #[arg(value_name = "SOURCE")]
    pub source: String,

    /// Print what would be accepted, by directory, and accept nothing
    #[arg(long, env = "RSNOTIFY_DRY_RUN", value_parser = FalseyValueParser::new())]
    pub dry_run: bool,

    #[command(flatten)]
    pub tree: TreeOptions,

    /// Print JSON
    #[arg(long, env = "RSNOTIFY_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// What is asked of a running daemon, or of the state that it left.
#[derive(Debug, Clone, Args)]
pub struct AskOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// Print JSON
    #[arg(long, env = "RSNOTIFY_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ListenOptions {
    /// The topic's URI
    #[arg(value_name = "TOPIC")]
    pub topic: String,

    /// What --callback-listen is reached as by the hub [default: http://CALLBACK_LISTEN/]
    #[arg(long, value_name = "URL", env = "RSNOTIFY_CALLBACK")]
    pub callback: Option<String>,

    /// Where to wait for the hub [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR", env = "RSNOTIFY_CALLBACK_LISTEN")]
    pub callback_listen: Option<String>,

    /// The hub to subscribe at [default: the one that the topic names]
    #[arg(long, value_name = "URI", env = "RSNOTIFY_HUB")]
    pub hub: Option<String>,

    /// Print the payloads instead of one line per change
    #[arg(long, env = "RSNOTIFY_XML", value_parser = FalseyValueParser::new())]
    pub xml: bool,

    /// How long the subscription is to last [default: as the hub decides]
    #[arg(long, value_name = "SECONDS", env = "RSNOTIFY_LEASE")]
    pub lease: Option<NonZeroU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Human,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// As a log filter names it.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// What a command comes to. The argument parser itself exits with 2 for wrong usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Fine,
    /// Something was found, or failed.
    Failure,
    /// The command line lacks something.
    Usage,
    /// The configuration is wrong; nothing else answers so, and a service manager need not try again.
    Configuration,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Configuration => 78,
        })
    }
}

#[cfg(test)]
mod tests;
