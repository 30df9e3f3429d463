# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_rsnotify_global_optspecs
    string join \n config= h/help V/version
end

function __fish_rsnotify_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_rsnotify_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_rsnotify_using_subcommand
    set -l cmd (__fish_rsnotify_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c rsnotify -n "__fish_rsnotify_needs_command" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_needs_command" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -s V -l version -d 'Print version'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "run" -d 'Watch the tree and announce its changes, until stopped'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "hub" -d 'Run a hub for many Sources, until stopped'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "check" -d 'Diagnose the configuration, the tree, the machine, and the way to topics and hubs'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "scan" -d 'Print every document in the tree, with its state'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "accept" -d 'Accept that the missing documents of a source are deleted'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "status" -d 'Print the status of the daemon, with what requires action first'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "outbox" -d 'Show pending changes of each hub; retry or drop them'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "subscriptions" -d 'Show the subscriptions of the embedded hub; remove one'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "listen" -d 'Subscribe to topics, and print their notifications or run a command for each'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "resend" -d 'Send a broker the current resources, as additions, for consumers that start from nothing'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "advertise" -d 'Print patches by which Capability Lists advertise their channels, and commands to subscribe'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "token" -d 'Make a bearer token for a publisher of `rsnotify hub`, and print the lines for both configurations'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "backup" -d 'Write a copy of the state to a new file, while the daemon runs or not'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "reload" -d 'Have the running daemon reload its configuration, and wait for the outcome'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "health" -d 'Check the health of the running daemon'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "man" -d 'Print the manual page, or write all of them to a directory'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "config" -d 'Print the effective configuration, with defaults and without secrets'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "schema" -d 'Print the JSON Schema of the configuration file, for editors'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "snippet" -d 'Print the configuration of a reverse proxy for topics and the embedded hub'
complete -c rsnotify -n "__fish_rsnotify_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l hub -d 'The hub to notify; replaces the file\'s hubs [default: the embedded hub]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l listen -d 'The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l public-url -d 'The public URL of --listen [default: http://LISTEN/]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l admin-listen -d 'The address to serve health, metrics and the status page at [default: 127.0.0.1:8401]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l log-format -d 'The format of log lines [default: human]' -r -f -a "human\t''
json\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l log-level -d 'The lowest level to log, to standard error [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -l dry-run -d 'Print the requests that would be sent to hubs now; send and save nothing'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -l listen -d 'The address to serve the hub at [default: 127.0.0.1:8400]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -l admin-listen -d 'The address to serve health, metrics and the status page at [default: 127.0.0.1:8401]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -l log-format -d 'The format of log lines [default: human]' -r -f -a "human\t''
json\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -l log-level -d 'The lowest level to log, to standard error [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand hub" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l hub -d 'The hub to notify; replaces the file\'s hubs [default: the embedded hub]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l listen -d 'The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l public-url -d 'The public URL of --listen [default: http://LISTEN/]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l all -d 'Print each finding, instead of three of a kind and the number of others'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l no-environment -d 'Check the configuration only, not trees, machine, topics and hubs'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -l state -d 'Print only documents in these states, separated by commas' -r -f -a "announced\t''
pending\t''
held\t''
missing\t''
broken\t''
unrouted\t''
archived\t''
silent\t''
new\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand scan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -l dry-run -d 'Print what would be accepted, by directory, and accept nothing'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand accept" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand status" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand status" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand status" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand status" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand status" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand status" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -f -a "list" -d 'Print one line for each channel and hub, failing ones first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -f -a "show" -d 'Print the pending changes of a hub on a channel, and its last answer'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -f -a "retry" -d 'Retry now, without waiting for the next attempt'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -f -a "drop" -d 'Drop the pending changes of a hub on a channel: they count as told'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and not __fish_seen_subcommand_from list show retry drop help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -l state -d 'Print only hubs in these states, separated by commas' -r -f -a "needs_person\t''
failing\t''
unfetched\t''
no_subscribers\t''
due\t''
fine\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l kind -d 'The kind of the channel, if its Capability List has one of each' -r -f -a "framework\t''
change\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l payload -d 'Print the notification in flight too'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -l kind -d 'The kind of the channel, if its Capability List has one of each' -r -f -a "framework\t''
change\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from retry" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l kind -d 'The kind of the channel, if its Capability List has one of each' -r -f -a "framework\t''
change\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l yes -d 'Drop them; without this flag, only print them'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from drop" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from help" -f -a "list" -d 'Print one line for each channel and hub, failing ones first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print the pending changes of a hub on a channel, and its last answer'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from help" -f -a "retry" -d 'Retry now, without waiting for the next attempt'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from help" -f -a "drop" -d 'Drop the pending changes of a hub on a channel: they count as told'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand outbox; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and not __fish_seen_subcommand_from list show remove help" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and not __fish_seen_subcommand_from list show remove help" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and not __fish_seen_subcommand_from list show remove help" -f -a "list" -d 'Print one line for each subscription, failing ones first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and not __fish_seen_subcommand_from list show remove help" -f -a "show" -d 'Print the details of a subscription'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and not __fish_seen_subcommand_from list show remove help" -f -a "remove" -d 'Remove a subscription, and notify its subscriber'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and not __fish_seen_subcommand_from list show remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from list" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from list" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from list" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from list" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from show" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from show" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from show" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from show" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -l yes -d 'Remove it; without this flag, only print it'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from help" -f -a "list" -d 'Print one line for each subscription, failing ones first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print the details of a subscription'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove a subscription, and notify its subscriber'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand subscriptions; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l broker -d 'The broker of the configuration to read messages from, instead of subscribing to topics' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l destination -d 'The destination of the broker to read from [default: the one of the configuration]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l selector -d 'The messages to read, by their properties, as a JMS selector; not with RabbitMQ' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l durable -d 'The name of a durable subscription, for which the broker keeps messages while nobody reads them' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l kind -d 'The kind of channels to take from a Capability List or Source Description [default: both]' -r -f -a "framework\t'Changes of documents: Resource Lists, Change Lists and others'
change\t'Changes of resources'"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l callback -d 'The callback URL for the hub to call [default: http://CALLBACK_LISTEN/]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l callback-listen -d 'The address to receive notifications at [default: a free port of 127.0.0.1, with --state the same each time]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l hub -d 'The hub to subscribe at [default: the one that the topic names]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l exec -d 'The command to run by the shell for each notification, with its JSON as input; instead of printing it' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l exec-timeout -d 'The time after which a run of the command is ended, and counts as failed' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l state -d 'The file that makes a restart the same subscriber: callbacks, secrets, and the last notification of each topic' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l lease -d 'The lease to request [default: 3600]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l strict -d 'Leave damaged and oversized messages at the broker, unacknowledged'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l json -d 'Print one line of JSON per notification and event'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l xml -d 'Print the notifications as received instead of one line per change'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -l exec-batch -d 'Run the command once for all notifications of a topic that are waiting, a line each'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand listen" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l destination -d 'The destination to send to [default: the one of the configuration]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l under -d 'Send only the resource with this URI, and those below it' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l rate -d 'The number of resources to send in a second, at most' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l state -d 'The file that stores the position, to continue there [default: resend-BROKER.json in the state directory]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand resend" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l hub -d 'The hub to notify; replaces the file\'s hubs [default: the embedded hub]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l listen -d 'The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l public-url -d 'The public URL of --listen [default: http://LISTEN/]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l kind -d 'Only the channels of this kind [default: both]' -r -f -a "framework\t''
change\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l entry -d 'Print only the entries, for authors of generators'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l write -d 'Write what is missing into the Capability Lists, each as a whole, instead of printing patches'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -l json -d 'Print JSON'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand advertise" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand token" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand token" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand token" -l write -d 'Add the publisher to the hub\'s configuration, have the running hub reload it, and print the Source\'s lines'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand token" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand backup" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand backup" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand backup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand reload" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand reload" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand reload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l admin-listen -d 'The address of the daemon\'s admin listener [default: 127.0.0.1:8401]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l timeout -d 'The timeout for the answer' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -l ready -d 'Check readiness: all mounts were swept once, and the state can be saved'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand health" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand completions" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand completions" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand man" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand man" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l hub -d 'The hub to notify; replaces the file\'s hubs [default: the embedded hub]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l listen -d 'The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l public-url -d 'The public URL of --listen [default: http://LISTEN/]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l admin-listen -d 'The address to serve health, metrics and the status page at [default: 127.0.0.1:8401]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l log-format -d 'The format of log lines [default: human]' -r -f -a "human\t''
json\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l log-level -d 'The lowest level to log, to standard error [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand config" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand schema" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand schema" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l root -d 'The directory that is published; replaces the file\'s sources by one named "main"' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l url -d 'The URI that --root is published as [default: as its Capability Lists name it]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l state-dir -d 'The directory of the state file' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l hub -d 'The hub to notify; replaces the file\'s hubs [default: the embedded hub]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l listen -d 'The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l public-url -d 'The public URL of --listen [default: http://LISTEN/]' -r
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -l config -d 'The configuration file [default: /etc/rsnotify/config.toml, unless --root is given]' -r -F
complete -c rsnotify -n "__fish_rsnotify_using_subcommand snippet" -s h -l help -d 'Print help'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "run" -d 'Watch the tree and announce its changes, until stopped'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "hub" -d 'Run a hub for many Sources, until stopped'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "check" -d 'Diagnose the configuration, the tree, the machine, and the way to topics and hubs'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "scan" -d 'Print every document in the tree, with its state'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "accept" -d 'Accept that the missing documents of a source are deleted'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "status" -d 'Print the status of the daemon, with what requires action first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "outbox" -d 'Show pending changes of each hub; retry or drop them'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "subscriptions" -d 'Show the subscriptions of the embedded hub; remove one'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "listen" -d 'Subscribe to topics, and print their notifications or run a command for each'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "resend" -d 'Send a broker the current resources, as additions, for consumers that start from nothing'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "advertise" -d 'Print patches by which Capability Lists advertise their channels, and commands to subscribe'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "token" -d 'Make a bearer token for a publisher of `rsnotify hub`, and print the lines for both configurations'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "backup" -d 'Write a copy of the state to a new file, while the daemon runs or not'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "reload" -d 'Have the running daemon reload its configuration, and wait for the outcome'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "health" -d 'Check the health of the running daemon'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "completions" -d 'Print completions for a shell'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "man" -d 'Print the manual page, or write all of them to a directory'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "config" -d 'Print the effective configuration, with defaults and without secrets'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "schema" -d 'Print the JSON Schema of the configuration file, for editors'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "snippet" -d 'Print the configuration of a reverse proxy for topics and the embedded hub'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and not __fish_seen_subcommand_from run hub check scan accept status outbox subscriptions listen resend advertise token backup reload health completions man config schema snippet help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from outbox" -f -a "list" -d 'Print one line for each channel and hub, failing ones first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from outbox" -f -a "show" -d 'Print the pending changes of a hub on a channel, and its last answer'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from outbox" -f -a "retry" -d 'Retry now, without waiting for the next attempt'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from outbox" -f -a "drop" -d 'Drop the pending changes of a hub on a channel: they count as told'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from subscriptions" -f -a "list" -d 'Print one line for each subscription, failing ones first'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from subscriptions" -f -a "show" -d 'Print the details of a subscription'
complete -c rsnotify -n "__fish_rsnotify_using_subcommand help; and __fish_seen_subcommand_from subscriptions" -f -a "remove" -d 'Remove a subscription, and notify its subscriber'
