//! `man` and `completions`: the manual pages, and completions for shells, generated from the command line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::cli::Exit;
use crate::cli::options::CommandLine;
use crate::cli::output::print;

/// Exit codes of all commands; the argument parser has that of wrong usage too.
const EXIT_STATUS: [(Exit, &str); 4] = [
    (Exit::Fine, "Success."),
    (Exit::Failure, "A finding, or a failure."),
    (Exit::Usage, "The command line is wrong."),
    (
        Exit::Configuration,
        "The configuration is wrong; no other error has this code.",
    ),
];

/// Further ones of `listen`, if no subscription can be made.
const LISTEN_EXIT_STATUS: [(Exit, &str); 4] = [
    (Exit::Refused, "The hub refuses the subscription request."),
    (
        Exit::Temporary,
        "The hub or the topic fails in a way that may pass: try again.",
    ),
    (
        Exit::NotVerified,
        "The hub does not verify the subscription.",
    ),
    (Exit::Denied, "The hub denies the subscription."),
];

/// Further ones of `resend`.
const RESEND_EXIT_STATUS: [(Exit, &str); 2] = [
    (
        Exit::Refused,
        "The broker refuses the login or a destination.",
    ),
    (
        Exit::Temporary,
        "The broker cannot be reached, or fails in a way that may pass: try again, which continues where it stopped.",
    ),
];

/// Variables that no flag has, each with what it is. Those of flags are described with the flags.
const ENVIRONMENT: &str = "\
STATE_DIRECTORY: The directory of the state file, unless state_dir is configured. systemd sets it.
XDG_STATE_HOME: The directory below which rsnotify keeps that otherwise [default: ~/.local/state].
CREDENTIALS_DIRECTORY: The directory of the secrets that are configured as { credential = \"NAME\" }. systemd sets it.
HTTPS_PROXY, HTTP_PROXY, ALL_PROXY: The proxy through which hubs are reached, unless the configuration names one.
NO_PROXY: The hosts, separated by commas, that are reached without it.
NOTIFY_SOCKET, WATCHDOG_USEC: The socket by which systemd is notified of readiness and the watchdog. systemd sets it.
LISTEN_FDS: Sockets that systemd has opened for the daemon.";

const FILES: &str = "\
/etc/rsnotify/config.toml: The configuration, unless --config or --root is given.
/var/lib/rsnotify/: The state of the service: the documents seen, and what each hub was told.
/usr/share/doc/rsnotify/: More to read: docs/configuration.md explains each key of the configuration, \
docs/how-it-decides.md what is announced and when.";

pub fn man(directory: Option<&Path>) -> anyhow::Result<Exit> {
    // `help` repeats what each page says.
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    if let Some(directory) = directory {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        write_all(&command, None, directory)?;
        Ok(Exit::Fine)
    } else {
        let page = page(&command, None)?;
        print(|out| out.0.write_all(&page))
    }
}

pub fn completions(shell: Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "rsnotify", &mut script);
    print(|out| out.0.write_all(&script))
}

/// Writes the page of a command, and those of its subcommands.
fn write_all(command: &Command, parent: Option<&str>, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(format!("{}.1", page_name(command)));
    fs::write(&path, page(command, parent)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    command
        .get_subcommands()
        .try_for_each(|below| write_all(below, Some(page_name(command)), directory))
}

/// Returns the name of a command's page: `rsnotify-outbox-list`.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// Returns the page of a command: the sections of the command line, then those that it lacks.
fn page(command: &Command, parent: Option<&str>) -> io::Result<Vec<u8>> {
    // As in `--help`, which names the values of flags.
    let line = command.clone().render_usage().to_string();
    let usage = line.trim_start_matches("Usage: ").to_owned();
    let mut page = Vec::new();
    Man::new(command.clone().override_usage(usage))
        // A page that is the same on each day has no date; an empty one would be left out, and shift the rest.
        .date(" ")
        .source(concat!("rsnotify ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands")
        .render(&mut page)?;
    let mut rest = Roff::new();
    let more: &[_] = match command.get_name() {
        "listen" => &LISTEN_EXIT_STATUS,
        "resend" => &RESEND_EXIT_STATUS,
        _ => &[],
    };
    let mut exit_status = [&EXIT_STATUS, more].concat();
    exit_status.sort_by_key(|(exit, _)| exit.code());
    let exit_status = exit_status
        .into_iter()
        .map(|(exit, text)| (exit.code().to_string(), text));
    section(&mut rest, "EXIT STATUS", exit_status);
    if let Some(parent) = parent {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold(parent), roman("(1)")]);
    } else {
        for (title, entries) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)] {
            let entries = entries.lines().filter_map(|line| line.split_once(": "));
            section(
                &mut rest,
                title,
                entries.map(|(name, text)| (name.to_owned(), text)),
            );
        }
    }
    page.extend(rest.to_roff().into_bytes());
    Ok(page)
}

fn section(page: &mut Roff, title: &str, entries: impl Iterator<Item = (String, &'static str)>) {
    page.control("SH", [title]);
    for (name, text) in entries {
        page.control("TP", []);
        page.text([italic(name)]);
        page.text([roman(text)]);
    }
}
