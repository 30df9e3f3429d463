//! Command line: commands, flags and their environment variables.
//!
//! Every flag has one environment variable, `RSNOTIFY_` and the flag in capitals (a test compares them).

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Hub;
use url::Url;

use crate::config::environment::{
    DaemonOptions, Overrides, SourceOptions, StateDirOption, TreeOptions,
};
use crate::control::SubscriptionName;
use crate::report::documents::DocumentState;
use crate::report::status::AccountCondition;
use resourcesync::datetime::parse_duration;

/// Announces every change of a ResourceSync Source over WebSub, from the files it publishes.
#[derive(Debug, Parser)]
#[command(name = "rsnotify", version, arg_required_else_help = true, mut_subcommands = with_variables)]
pub struct CommandLine {
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
    /// Reads the tree and writes only to the state directory. Hubs are notified of each change, topics are served at --listen,
    /// health, metrics and the status page at --admin-listen. SIGHUP reloads the configuration, SIGTERM stops the daemon as
    /// soon as requests in flight are done; changes that are pending then are announced after the next start.
    Run(RunOptions),
    /// Run a hub for many Sources, until stopped
    ///
    /// Takes notifications over WebSub from the publishers that the configuration names, and delivers them to their
    /// subscribers. The configuration file has the tables hub and publisher instead of sources; the hub is served at --listen,
    /// health, metrics and the status page at --admin-listen. SIGHUP reloads the configuration, SIGTERM stops the hub as soon
    /// as requests in flight are done; deliveries that are pending then are made after the next start.
    Hub(HubOptions),
    /// Diagnose the configuration, the tree, the machine, and the way to topics and hubs
    ///
    /// Binds no address, saves nothing and notifies no hub; requests to topics and hubs change nothing. A finding requires
    /// action and makes the exit status 1, a note does not.
    Check(CheckOptions),
    /// Print every document in the tree, with its state
    ///
    /// One line for each: its state, its capability and form, its URI, and the reason. The states are announced (all hubs
    /// have accepted it), pending (it is due to a hub), held (it waits to be listed), missing (and does not yet count as
    /// deleted), broken (its last complete version counts), unrouted (it belongs to no set of resources, or to one that is
    /// announced to no configured hub), archived (only an archive lists it), silent (an index or a manifest, which are never
    /// announced) and new (nothing was saved yet). On a terminal, the progress of the sweep is shown.
    Scan(ScanOptions),
    /// Accept that the missing documents of a source are deleted
    Accept(AcceptOptions),
    /// Print the status of the daemon, with what requires action first
    Status(DaemonQueryOptions),
    /// Show pending changes of each hub; retry or drop them
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Show the subscriptions of the embedded hub; remove one
    #[command(subcommand)]
    Subscriptions(SubscriptionsCommand),
    /// Subscribe to topics, and print their notifications or run a command for each
    ///
    /// Takes topics, and Capability Lists or Source Descriptions, which stand for all their channels. A notification is
    /// acknowledged to the hub only after it was printed or the command exited with 0; otherwise the hub is answered 503 and
    /// delivers it again. The command finds RSNOTIFY_TOPIC, RSNOTIFY_KIND, RSNOTIFY_FROM and RSNOTIFY_UNTIL in its
    /// environment. Gaps and repeats are reported on standard error, or as events with --json. With --state, SIGTERM and
    /// Ctrl-C leave the subscriptions as they are, and the next start hands over what was missed: from the topic, and for
    /// changes from the Change Lists. If no subscription can be made, the exit status is 75 for a temporary failure, 69 if the
    /// hub refuses the request, 77 if it denies the subscription, and 76 if it does not verify it; later failures are
    /// retried.
    Listen(ListenOptions),
    /// Send a broker the current resources, as additions, for consumers that start from nothing
    ///
    /// Sends each resource of the broker's sets once, unless the last thing that the set's Resource Lists and Change
    /// Lists say of it is a deletion. The messages are like those about changes, with the property initial=true. The
    /// broker's account does not change, and a daemon may run meanwhile. If it is interrupted, the same command
    /// continues where it stopped. The exit status is 1 if a list cannot be read, 69 if the
    /// broker refuses the login or a destination, and 75 if it cannot be reached or fails otherwise.
    Resend(ResendOptions),
    /// Print patches by which Capability Lists advertise their channels, and commands to subscribe
    Advertise(AdvertiseOptions),
    /// Make a bearer token for a publisher of `rsnotify hub`, and print the lines for both configurations
    ///
    /// With --write, the token is saved in a file that only the hub's user may read, beside those of the other publishers
    /// or the configuration file. Run that on the hub's host, as root or as its user.
    Token(TokenOptions),
    /// Write a copy of the state to a new file, while the daemon runs or not
    ///
    /// The copy has the secrets of the embedded hub's subscribers: only its user may read it.
    Backup {
        /// The file to write, which must not exist
        #[arg(value_name = "FILE")]
        to: PathBuf,

        #[command(flatten)]
        state: StateDirOption,
    },
    /// Have the running daemon reload its configuration, and wait for the outcome
    ///
    /// Prints what that changes. If the new configuration is wrong, the daemon keeps the previous one, and the exit status
    /// is 1.
    Reload(StateDirOption),
    /// Check the health of the running daemon
    Health(HealthOptions),
    /// Print completions for a shell
    #[command(display_order = 900)]
    Completions {
        /// The shell
        #[arg(value_parser = parser_by_name([(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")]))]
        shell: Shell,
    },
    /// Print the manual page, or write all of them to a directory
    #[command(display_order = 900)]
    Man {
        /// The directory to write all pages to [default: print the page of rsnotify alone]
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Print the effective configuration, with defaults and without secrets
    Config(Overrides),
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Print the configuration of a reverse proxy for topics and the embedded hub
    Snippet {
        /// The web server in front
        #[arg(value_enum)]
        server: WebServer,

        #[command(flatten)]
        source: SourceOptions,
    },
}

#[derive(Debug, Clone, Args)]
pub struct TokenOptions {
    /// The publisher's name, for logs, status and metrics
    pub name: String,

    /// The beginnings of its topics
    #[arg(value_name = "TOPIC")]
    pub topics: Vec<String>,

    /// Add the publisher to the hub's configuration, have the running hub reload it, and print the Source's lines
    #[arg(long, requires = "topics")]
    pub write: bool,

    #[command(flatten)]
    pub state: StateDirOption,
}

#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub keys: Overrides,

    /// Print the requests that would be sent to hubs now; send and save nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Args)]
pub struct HubOptions {
    #[command(flatten)]
    pub state: StateDirOption,

    /// The address to serve the hub at [default: 127.0.0.1:8400]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    #[command(flatten)]
    pub daemon: DaemonOptions,
}

impl HubOptions {
    pub fn overrides(&self) -> Overrides {
        let mut overrides = self.state.overrides();
        overrides.source.listen.clone_from(&self.listen);
        overrides.daemon = self.daemon.clone();
        overrides
    }
}

#[derive(Debug, Clone, Args)]
pub struct CheckOptions {
    #[command(flatten)]
    pub source: SourceOptions,

    /// Print each finding, instead of three of a kind and the number of others
    #[arg(long)]
    pub all: bool,

    /// Check the configuration only, not trees, machine, topics and hubs
    #[arg(long)]
    pub no_environment: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct AcceptOptions {
    /// The source's name, as configured
    pub source: String,

    /// Print what would be accepted, by directory, and accept nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub ask: DaemonQueryOptions,
}

/// Flags of requests to a running daemon, or to the state that it left.
#[derive(Debug, Clone, Args)]
pub struct DaemonQueryOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct ListenOptions {
    /// Topics, or Capability Lists and Source Descriptions, which stand for their channels
    #[arg(value_name = "URL", required_unless_present = "broker")]
    pub urls: Vec<String>,

    /// The broker of the configuration to read messages from, instead of subscribing to topics
    #[arg(long, value_name = "NAME",
        conflicts_with_all = ["urls", "kind", "callback", "callback_listen", "hub", "exec_batch", "state", "lease"])]
    pub broker: Option<String>,

    /// The destination of the broker to read from [default: the one of the configuration]
    #[arg(long, requires = "broker", conflicts_with = "urls")]
    pub destination: Option<String>,

    /// The messages to read, by their properties, as a JMS selector; not with RabbitMQ
    #[arg(long, requires = "broker", conflicts_with = "urls")]
    pub selector: Option<String>,

    /// The name of a durable subscription, for which the broker keeps messages while nobody reads them
    #[arg(
        long,
        value_name = "NAME",
        requires = "broker",
        conflicts_with = "urls"
    )]
    pub durable: Option<String>,

    /// Leave damaged and oversized messages at the broker, unacknowledged
    #[arg(long, requires = "broker", conflicts_with = "urls")]
    pub strict: bool,

    /// The kind of channels to take from a Capability List or Source Description [default: both]
    #[arg(long, value_parser = parser_by_name(ChannelKind::ALL.map(kind_with_help)))]
    pub kind: Option<ChannelKind>,

    /// The callback URL for the hub to call [default: http://CALLBACK_LISTEN/]
    #[arg(long, value_name = "URL", value_parser = parse_callback)]
    pub callback: Option<Url>,

    /// The address to receive notifications at [default: a free port of 127.0.0.1, with --state the same each time]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub callback_listen: Option<SocketAddr>,

    /// The hub to subscribe at [default: the one that the topic names]
    #[arg(long, value_name = "URI")]
    pub hub: Option<Hub>,

    /// Print one line of JSON per notification and event
    #[arg(long)]
    pub json: bool,

    /// Print the notifications as received instead of one line per change
    #[arg(long, conflicts_with_all = ["json", "exec", "state"])]
    pub xml: bool,

    /// The command to run by the shell for each notification, with its JSON as input; instead of printing it
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<String>,

    /// Run the command once for all notifications of a topic that are waiting, a line each
    #[arg(long, requires = "exec")]
    pub exec_batch: bool,

    /// The time after which a run of the command is ended, and counts as failed
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        value_parser = parse_positive_duration,
        requires = "exec"
    )]
    pub exec_timeout: Duration,

    /// The file that makes a restart the same subscriber: callbacks, secrets, and the last notification of each topic
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// The lease to request [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub lease: Option<NonZeroU64>,
}

#[derive(Debug, Clone, Args)]
pub struct ResendOptions {
    /// The name of the broker in the configuration
    pub broker: String,

    /// The destination to send to [default: the one of the configuration]
    #[arg(long)]
    pub destination: Option<String>,

    /// Send only the resource with this URI, and those below it
    #[arg(long, value_name = "URI")]
    pub under: Option<String>,

    /// The number of resources to send in a second, at most
    #[arg(long, value_name = "NUMBER", default_value = "500")]
    pub rate: NonZeroU32,

    /// The file that stores the position, to continue there [default: resend-BROKER.json in the state directory]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    #[command(flatten)]
    pub tree: TreeOptions,
}

#[derive(Debug, Clone, Args)]
pub struct ScanOptions {
    /// A file to explain, instead of all: the glob that matches it, its place, its state, or why it is no document
    #[arg(conflicts_with = "state")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub tree: TreeOptions,

    /// Print only documents in these states, separated by commas
    #[arg(long, value_parser = parser_by_name(DocumentState::NAMES), value_delimiter = ',')]
    pub state: Vec<DocumentState>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WebServer {
    Nginx,
    Apache,
    Caddy,
}

#[derive(Debug, Clone, Args)]
pub struct AdvertiseOptions {
    #[command(flatten)]
    pub source: SourceOptions,

    /// Only the channels of this kind [default: both]
    #[arg(long, value_parser = channel_kind_parser())]
    pub kind: Option<ChannelKind>,

    /// Print only the entries, for authors of generators
    #[arg(long)]
    pub entry: bool,

    /// Write what is missing into the Capability Lists, each as a whole, instead of printing patches
    #[arg(long, conflicts_with = "entry")]
    pub write: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Args)]
pub struct HealthOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// The address of the daemon's admin listener [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,

    /// Check readiness: all mounts were swept once, and the state can be saved
    #[arg(long)]
    pub ready: bool,

    /// The timeout for the answer
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = parse_duration
    )]
    pub timeout: Duration,
}

#[derive(Debug, Clone, Subcommand)]
pub enum OutboxCommand {
    /// Print one line for each channel and hub, failing ones first
    List {
        /// Print only hubs in these states, separated by commas
        #[arg(long, value_parser = parser_by_name(AccountCondition::NAMES), value_delimiter = ',')]
        state: Vec<AccountCondition>,

        #[command(flatten)]
        ask: DaemonQueryOptions,
    },
    /// Print the pending changes of a hub on a channel, and its last answer
    Show {
        /// The channel: the URI of its topic, or of its Capability List [default: the only one]
        #[arg(requires = "hub")]
        channel: Option<String>,

        /// The kind of the channel, if its Capability List has one of each
        #[arg(long, value_parser = channel_kind_parser())]
        kind: Option<ChannelKind>,

        /// The hub: its URI as it is advertised, or "embedded" [default: the only one]
        hub: Option<String>,

        /// Print the notification in flight too
        #[arg(long)]
        payload: bool,

        #[command(flatten)]
        ask: DaemonQueryOptions,
    },
    /// Retry now, without waiting for the next attempt
    Retry {
        /// The channel: the URI of its topic, or of its Capability List [default: all]
        #[arg(requires = "hub")]
        channel: Option<String>,

        /// The kind of the channel, if its Capability List has one of each
        #[arg(long, value_parser = channel_kind_parser())]
        kind: Option<ChannelKind>,

        /// The hub: its URI as it is advertised, or "embedded" [default: all]
        hub: Option<String>,

        #[command(flatten)]
        ask: DaemonQueryOptions,
    },
    /// Drop the pending changes of a hub on a channel: they count as told
    Drop {
        /// The channel: the URI of its topic, or of its Capability List
        channel: String,

        /// The kind of the channel, if its Capability List has one of each
        #[arg(long, value_parser = channel_kind_parser())]
        kind: Option<ChannelKind>,

        /// The hub: its URI as it is advertised, or "embedded"
        hub: String,

        /// Drop them; without this flag, only print them
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        ask: DaemonQueryOptions,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub enum SubscriptionsCommand {
    /// Print one line for each subscription, failing ones first
    List(DaemonQueryOptions),
    /// Print the details of a subscription
    Show {
        #[command(flatten)]
        name: SubscriptionName,

        #[command(flatten)]
        ask: DaemonQueryOptions,
    },
    /// Remove a subscription, and notify its subscriber
    Remove {
        #[command(flatten)]
        name: SubscriptionName,

        /// Remove it; without this flag, only print it
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        ask: DaemonQueryOptions,
    },
}

/// Parses a value by its name in configuration and reports.
fn parser_by_name<T, const N: usize>(
    names: [(T, impl Into<PossibleValue>); N],
) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let values = names.map(|(value, name)| (value, name.into()));
    PossibleValuesParser::new(values.clone().map(|(_, name)| name)).map(move |word| {
        let mut values = values.iter();
        let found = values.find(|(_, name)| name.get_name() == word);
        found.expect("a possible value").0.clone()
    })
}

/// Parses a kind of channel.
fn channel_kind_parser() -> impl TypedValueParser<Value = ChannelKind> {
    parser_by_name(ChannelKind::ALL.map(|kind| (kind, kind.as_str())))
}

/// Describes a kind of channel in the help text.
fn kind_with_help(kind: ChannelKind) -> (ChannelKind, PossibleValue) {
    let help = match kind {
        ChannelKind::Framework => "Changes of documents: Resource Lists, Change Lists and others",
        ChannelKind::Change => "Changes of resources",
    };
    (kind, PossibleValue::new(kind.as_str()).help(help))
}

/// Gives each flag of a command its environment variable.
fn with_variables(command: clap::Command) -> clap::Command {
    let with_variable = |flag: Arg| {
        let Some(name) = flag.get_long() else {
            return flag;
        };
        let name = name.to_uppercase().replace('-', "_");
        let flag = flag.env(format!("RSNOTIFY_{name}"));
        match flag.get_action() {
            ArgAction::SetTrue => flag.value_parser(FalseyValueParser::new()),
            _ => flag,
        }
    };
    command
        .mut_args(with_variable)
        .mut_subcommands(with_variables)
}

fn parse_callback(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| format!("not a URL: {error}"))
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "not an address such as 127.0.0.1:8500")
}

/// Parses a duration that is not 0.
fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("it must be longer than 0s".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
