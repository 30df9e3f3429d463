//! The command line as an operator types it: the options of all commands.
//!
//! Every flag has one environment variable, `RSNOTIFY_` and the flag in capitals (a test compares them).

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, PossibleValue};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::duration;
use crate::config::overrides::Overrides;
use crate::report::documents::DocumentState;
use crate::report::status::Condition;

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
    Status(RequestOptions),
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
pub struct RequestOptions {
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

#[derive(Debug, Clone, Args)]
pub struct ScanOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// Print only documents in these states, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        env = "RSNOTIFY_STATE",
        value_delimiter = ','
    )]
    pub state: Vec<DocumentState>,

    /// Print JSON
    #[arg(long, env = "RSNOTIFY_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

impl ValueEnum for DocumentState {
    fn value_variants<'a>() -> &'a [DocumentState] {
        &DocumentState::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()))
    }
}

#[derive(Debug, Clone, Args)]
pub struct SnippetOptions {
    /// The web server in front
    #[arg(value_enum, value_name = "SERVER")]
    pub server: WebServer,

    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub network: NetworkOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WebServer {
    Nginx,
    Apache,
    Caddy,
}

/// What `run` takes of these, so that one sees what it would do.
#[derive(Debug, Clone, Args)]
pub struct ConfigOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    /// Where health, metrics and the status page listen [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR", env = "RSNOTIFY_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,
}

impl ConfigOptions {
    pub fn overrides(&self) -> Overrides {
        Overrides {
            admin_listen: self.admin_listen.clone(),
            ..self.network.overrides(self.tree.overrides())
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct AdvertiseOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    /// Print each entry alone, for those who write generators
    #[arg(long, env = "RSNOTIFY_ENTRY", value_parser = FalseyValueParser::new())]
    pub entry: bool,

    /// Print JSON
    #[arg(long, env = "RSNOTIFY_JSON", value_parser = FalseyValueParser::new())]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct HealthOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// Where the daemon's admin listener is [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR", env = "RSNOTIFY_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,

    /// Ask whether it is ready: everything was looked at once, and the state can be saved
    #[arg(long, env = "RSNOTIFY_READY", value_parser = FalseyValueParser::new())]
    pub ready: bool,

    /// How long to wait for the answer
    #[arg(
        long,
        value_name = "DURATION",
        env = "RSNOTIFY_TIMEOUT",
        default_value = "2s",
        value_parser = duration::parse
    )]
    pub timeout: Duration,
}

#[derive(Debug, Clone, Args)]
pub struct CompletionsOptions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// The shells whose completions we package.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Clone, Args)]
pub struct ManOptions {
    /// The directory to write all pages to [default: print the page of rsnotify alone]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum OutboxCommand {
    /// Print one line for each channel and hub, those in trouble first
    List(OutboxListOptions),
    /// Print all that a hub is due on a channel, and what it last answered
    Show(OutboxShowOptions),
    /// Try now what waits for its next try
    Retry(OutboxRetryOptions),
    /// Let what a hub is due on a channel count as told
    Drop(OutboxDropOptions),
}

#[derive(Debug, Clone, Args)]
pub struct OutboxListOptions {
    /// Print only hubs in these states, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        env = "RSNOTIFY_STATE",
        value_delimiter = ','
    )]
    pub state: Vec<Condition>,

    #[command(flatten)]
    pub ask: RequestOptions,
}

impl ValueEnum for Condition {
    fn value_variants<'a>() -> &'a [Condition] {
        &Condition::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()))
    }
}

/// A hub on a channel.
#[derive(Debug, Clone, Args)]
pub struct AccountOptions {
    /// The channel: the URI of its topic, or of its Capability List
    #[arg(value_name = "CHANNEL")]
    pub channel: String,

    /// The hub: its URI as it is advertised, or "embedded"
    #[arg(value_name = "HUB")]
    pub hub: String,
}

#[derive(Debug, Clone, Args)]
pub struct OutboxShowOptions {
    #[command(flatten)]
    pub account: AccountOptions,

    /// Print the notification in flight too
    #[arg(long, env = "RSNOTIFY_PAYLOAD", value_parser = FalseyValueParser::new())]
    pub payload: bool,

    #[command(flatten)]
    pub ask: RequestOptions,
}

#[derive(Debug, Clone, Args)]
pub struct OutboxRetryOptions {
    /// The channel: the URI of its topic, or of its Capability List [default: all]
    #[arg(value_name = "CHANNEL", requires = "hub")]
    pub channel: Option<String>,

    /// The hub: its URI as it is advertised, or "embedded" [default: all]
    #[arg(value_name = "HUB")]
    pub hub: Option<String>,

    #[command(flatten)]
    pub ask: RequestOptions,
}

#[derive(Debug, Clone, Args)]
pub struct OutboxDropOptions {
    #[command(flatten)]
    pub account: AccountOptions,

    /// Drop it; without this, say only what would be dropped
    #[arg(long, env = "RSNOTIFY_YES", value_parser = FalseyValueParser::new())]
    pub yes: bool,

    #[command(flatten)]
    pub ask: RequestOptions,
}

#[derive(Debug, Clone, Subcommand)]
pub enum SubscriptionsCommand {
    /// Print one line for each subscription, those in trouble first
    List(RequestOptions),
    /// Print all there is to know of one
    Show(SubscriptionShowOptions),
    /// End one, and tell its subscriber
    Remove(SubscriptionRemoveOptions),
}

/// A subscription.
#[derive(Debug, Clone, Args)]
pub struct SubscriptionOptions {
    /// The digest of its callback, as the log and the list show it
    #[arg(value_name = "CALLBACK_DIGEST")]
    pub callback: String,

    /// The topic, where that callback subscribes to several
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct SubscriptionShowOptions {
    #[command(flatten)]
    pub name: SubscriptionOptions,

    #[command(flatten)]
    pub ask: RequestOptions,
}

#[derive(Debug, Clone, Args)]
pub struct SubscriptionRemoveOptions {
    #[command(flatten)]
    pub name: SubscriptionOptions,

    /// Remove it; without this, say only which would be removed
    #[arg(long, env = "RSNOTIFY_YES", value_parser = FalseyValueParser::new())]
    pub yes: bool,

    #[command(flatten)]
    pub ask: RequestOptions,
}

#[cfg(test)]
mod tests;
