//! The command line is read as the contract has it.

use clap::{CommandFactory, Parser};

use super::CommandLine;

#[test]
fn the_command_line_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn every_flag_has_the_environment_variable_of_its_name() {
    let mut command = CommandLine::command();
    command.build();
    let mut commands = vec![&command];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        let is_ours = |id: &str| !["help", "version"].contains(&id);
        let flags = command.get_arguments();
        for flag in flags.filter(|flag| is_ours(flag.get_id().as_str())) {
            let Some(long) = flag.get_long() else {
                assert!(flag.is_positional(), "{flag}");
                continue;
            };
            let variable = format!("RSNOTIFY_{}", long.to_uppercase().replace('-', "_"));
            let name = flag.get_env().and_then(|name| name.to_str());
            let command = command.get_name();
            assert_eq!(name, Some(&*variable), "{command} --{long}");
        }
    }
}

#[test]
fn every_command_of_the_contract_is_read() {
    for line in [
        "rsnotify run --config c --dry-run --log-format json --log-level debug",
        "rsnotify hub --config c --state-dir s --listen l --admin-listen al --log-format json --log-level debug",
        "rsnotify check --no-environment --json --config c",
        "rsnotify --config c check --root a --url u --state-dir s --hub h --listen l --public-url p",
        "rsnotify scan --json --root a --url u --state-dir s",
        "rsnotify scan a/changelist.xml --json --config c",
        "rsnotify reload --config c --state-dir s",
        "rsnotify backup f --config c --state-dir s",
        "rsnotify token n --config c",
        "rsnotify token n http://e.org/ http://e.org/b/ --write --state-dir s --config c",
        "rsnotify advertise --entry --json --root a --url u --state-dir s --hub h --listen l --public-url p",
        "rsnotify advertise --write --json --config c --kind change",
        "rsnotify config --config c --root a --url u --state-dir s --hub h --listen l --admin-listen al --public-url p",
        "rsnotify schema",
        "rsnotify snippet nginx --config c --root a --url u --state-dir s --hub h --listen l --public-url p",
        "rsnotify accept main --json --root a --url u --state-dir s --config c",
        "rsnotify status --json --root a --url u --state-dir s --config c",
        "rsnotify outbox list --json --root a --url u --state-dir s --config c",
        "rsnotify outbox show t h --payload --json --config c",
        "rsnotify outbox show --json",
        "rsnotify outbox retry --json",
        "rsnotify outbox retry t h",
        "rsnotify outbox drop t h --yes --json",
        "rsnotify subscriptions list --json --root a --url u --state-dir s --config c",
        "rsnotify subscriptions show 5b9efc35 --json",
        "rsnotify subscriptions show 5b9efc35 http://e.org/t",
        "rsnotify subscriptions remove 5b9efc35 http://e.org/t --yes --json",
        "rsnotify health --ready --timeout 5s --admin-listen unix:a.sock --root a --url u --state-dir s --config c",
        "rsnotify listen http://e.org/t --callback http://c.example/ --callback-listen 127.0.0.1:0 --hub h --xml --lease 60",
        "rsnotify listen http://e.org/t http://e.org/cl.xml --kind change --json --state f --exec cat --exec-batch",
        "rsnotify listen t --kind framework",
        "rsnotify --config c listen --broker b --destination d --selector s --durable n --strict --json --exec cat",
    ] {
        let read = CommandLine::try_parse_from(line.split_whitespace());
        assert!(read.is_ok(), "{line}");
    }
    let wrong = "|watch|accept|accept one two|outbox|outbox show t|outbox retry t|outbox drop --yes\
        |subscriptions|subscriptions remove --yes|token n --write|snippet|snippet iis\
        |health --timeout 5|listen|listen t --lease 0|listen t --broker b|listen t --selector s\
        |listen t --strict|listen t --kind resource|listen t --exec-batch|listen t --xml --json\
        |listen t --xml --state f";
    for line in wrong.split('|').map(|line| format!("rsnotify {line}")) {
        let error = CommandLine::try_parse_from(line.split_whitespace()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
