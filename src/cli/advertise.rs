//! `advertise`: the entries that Capability Lists lack to advertise their channels, and the commands of a Destination.

mod sets;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use resourcesync::advertise::entry;
use resourcesync::document::Advertisement;
use resourcesync::escape::escaped;
use resourcesync::uri::Hub;
use serde_json::{Value, json};

use crate::cli::advertise::sets::{AdvertisedSet, SetComparison, sets};
use crate::cli::inference::with_url;
use crate::cli::one_shot_scan::{OneShotScan, scan_with_state};
use crate::cli::options::AdvertiseOptions;
use crate::cli::output::{EscapedStdout, eprint_line, print};
use crate::cli::{Exit, daemon_client};
use crate::config::Config;
use crate::daemon::log::error_chain;
use crate::diagnostics::{is_local, origin};
use crate::report::documents::DocumentState;
use crate::report::{self, JSON_VERSION};
use crate::tree;
use announce::state;
use announce::state::open::{StateFileError, copy_to_memory};

/// A placeholder for a Destination's callback.
const CALLBACK: &str = "https://destination.example.net/callback/";
const NOT_IN_THE_TREE: &str = "is not in the tree: its generator has to add the entry";

pub fn advertise(file: Option<&Path>, options: &AdvertiseOptions) -> anyhow::Result<Exit> {
    let mut config = Config::load(file, &with_url(file, options.source.overrides())?)?;
    // A running daemon knows its addresses, whatever its flags were; flags given here take precedence.
    let is_given = options.source.listen.is_some() || options.source.public_url.is_some();
    if !is_given && let Some(url) = daemon_client::public_url(&config) {
        config.server.public_url = Some(url);
    }
    anyhow::ensure!(
        config.server.known_public_url().is_some(),
        "cannot say what the topics are, since each start listens on another port: start rsnotify, or set \
         server.public_url"
    );
    let copy = match copy_to_memory(&config.state_dir) {
        // It tells only which hubs there were before.
        Err(error @ StateFileError::Denied(..)) => {
            let reason = error_chain(&error);
            eprint_line(format_args!("going on without the state: {reason}"));
            None
        }
        copy => copy?,
    };
    let scan = scan_with_state(&config, copy, false)?;
    let broken = broken_files(&scan)?;
    scan.notices.iter().chain(&broken).for_each(eprint_line);
    let mut sets = sets(&scan.engine.reader(scan.now), options.kind)?;
    if options.write {
        sets.iter_mut().for_each(AdvertisedSet::update_list);
    }
    let warnings = local_url_warnings(&config, &sets);
    warnings.into_iter().for_each(eprint_line);
    // If only entries are requested, the content of the list does not matter.
    let failures = sets.iter().filter_map(|set| match &set.outcome {
        SetComparison::Failed { reason } if !options.entry || set.channels.is_empty() => {
            Some((set, reason))
        }
        _ => None,
    });
    for (set, reason) in failures.clone() {
        eprint_line(format_args!("{} {reason}", set.name()));
    }
    print(|out| {
        if options.json {
            let sets: Vec<Value> = sets.iter().map(set_to_json).collect();
            let answer = json!({ "version": JSON_VERSION, "sets": sets });
            writeln!(out, "{answer:#}")
        } else if options.entry {
            sets.iter().try_for_each(|set| write_entries(out, set))
        } else if options.write {
            sets.iter().try_for_each(|set| write_outcome(out, set))
        } else {
            print_patches(out, &sets)
        }
    })?;
    Ok(Exit::fine_if(failures.count() + broken.len() == 0))
}

/// Returns the files that could not be read as documents, with the reasons: each may be a Capability List.
fn broken_files(scan: &OneShotScan) -> state::Result<Vec<String>> {
    let reader = &scan.engine.reader(scan.now);
    let mut files = report::documents::all(reader)?;
    files.retain(|file| file.kind.is_none() && file.state == DocumentState::Broken);
    let broken = files.into_iter().map(|file| {
        let path = tree::file_path(reader.plan, &file.path).unwrap_or_default();
        let reason = file.reason.unwrap_or_default();
        format!("{} cannot be patched: {reason}", path.display())
    });
    Ok(broken.collect())
}

/// Returns a warning about addresses that only this host reaches.
fn local_url_warnings(config: &Config, sets: &[AdvertisedSet]) -> BTreeSet<String> {
    let channels = || sets.iter().flat_map(|set| &set.channels);
    let topics = channels().map(|channel| channel.topic.as_str());
    let hubs = channels().flat_map(|channel| &channel.hubs);
    let addresses = topics.chain(hubs.map(Hub::as_str));
    let local = addresses.filter_map(origin_if_local).map(|origin| {
        let remedy = local_url_remedy(config, &origin);
        format!("only this host reaches {origin}: {remedy}")
    });
    local.collect()
}

/// Returns the reason why addresses are local, and so what to change.
fn local_url_remedy(config: &Config, origin: &str) -> &'static str {
    let is_at = |uri: &str| origin_if_local(uri).as_deref() == Some(origin);
    let public_url = config.server.known_public_url();
    if config.hubs.iter().any(|one| is_at(one.hub.as_str())) {
        "the hub is on localhost; subscribers elsewhere cannot reach it"
    } else if public_url.is_some_and(|url| is_at(url.as_str())) {
        "set server.public_url, or --public-url, to the address that Destinations reach"
    } else {
        "the url of a mount says so; give it the address that Destinations reach"
    }
}

/// Returns scheme, host and port of a URI whose host means another machine on each machine.
fn origin_if_local(uri: &str) -> Option<String> {
    is_local(uri).then(|| origin(uri))
}

fn set_to_json(set: &AdvertisedSet) -> Value {
    let channels = set.channels.iter().map(|channel| {
        json!({
            "kind": channel.kind,
            "topic": channel.topic,
            "hubs": channel.hubs,
            "entry": entry(channel),
        })
    });
    let channels: Vec<Value> = channels.collect();
    let of_first = |name| channels.first().map(|first| &first[name]);
    let (diff, reason) = match &set.outcome {
        SetComparison::Complete => (None, None),
        SetComparison::Lacks { patch, .. } => match std::str::from_utf8(patch) {
            Ok(patch) => (Some(patch), None),
            Err(_) => (
                None,
                Some("the patch is not UTF-8, and JSON is: leave out --json"),
            ),
        },
        SetComparison::NotInTheTree => (None, Some(NOT_IN_THE_TREE)),
        SetComparison::Failed { reason } => (None, Some(reason.as_str())),
    };
    json!({
        "capability_list": set.list.as_str(),
        "path": set.path.as_ref().map(|path| path.to_string_lossy()),
        "topic": of_first("topic"),
        "hubs": of_first("hubs").unwrap_or(&json!([])),
        "entry": of_first("entry"),
        "channels": channels,
        "diff": diff,
        "written": set.is_written,
        "reason": reason,
    })
}

fn write_entries(out: &mut impl Write, set: &AdvertisedSet) -> io::Result<()> {
    if set.channels.is_empty() {
        return Ok(());
    }
    // Two hyphens would end the comment.
    let list = set.list.as_str().replace("--", "-%2D");
    writeln!(out, "<!-- {list} -->")?;
    let mut entries = set.channels.iter().map(entry);
    entries.try_for_each(|entry| write!(out, "{entry}"))
}

/// Writes what became of a list that was to be written; a failure is reported already.
fn write_outcome(out: &mut EscapedStdout, set: &AdvertisedSet) -> io::Result<()> {
    let outcome = match &set.outcome {
        SetComparison::Complete => "unchanged: it advertises its channel",
        SetComparison::Lacks { .. } => "written: it advertises its channel now",
        SetComparison::NotInTheTree => NOT_IN_THE_TREE,
        SetComparison::Failed { .. } => return Ok(()),
    };
    writeln!(out, "{} {outcome}", set.name())
}

/// Writes the patches, and notes in lines that `patch` ignores.
fn print_patches(out: &mut EscapedStdout, sets: &[AdvertisedSet]) -> io::Result<()> {
    let is_patched = |set: &AdvertisedSet| matches!(set.outcome, SetComparison::Lacks { .. });
    if sets.iter().any(is_patched) {
        write_comment(
            out,
            "To apply the patches, pipe this into: patch -d / -p0\n",
        )?;
    }
    for set in sets {
        let state = match &set.outcome {
            SetComparison::Complete if set.channels.len() > 1 => "advertises its channels",
            SetComparison::Complete => "advertises its channel",
            SetComparison::Lacks { .. } => "lacks what the patch below adds",
            SetComparison::NotInTheTree => NOT_IN_THE_TREE,
            SetComparison::Failed { reason } => reason,
        };
        write_comment(out, &escaped(&format!("{} {state}", set.list)))?;
        for channel in &set.channels {
            if let SetComparison::NotInTheTree | SetComparison::Failed { .. } = set.outcome {
                write_comment(out, entry(channel).trim_end())?;
            }
            write_comment(out, &how_to_subscribe(channel))?;
        }
        if let SetComparison::Lacks { patch, .. } = &set.outcome {
            // Byte for byte, unless a terminal shows it.
            if out.0.is_terminal() {
                out.write_all(patch)?;
            } else {
                out.0.write_all(patch)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Writes lines that begin with `#`, so that none looks like a patch.
fn write_comment(out: &mut EscapedStdout, text: &str) -> io::Result<()> {
    text.split('\n')
        .try_for_each(|line| writeln!(out, "{}", format!("# {line}").trim_end()))
}

/// Returns the channel's addresses, and the commands to discover it, to subscribe and to listen (WebSub sections 4 and
/// 5).
fn how_to_subscribe(channel: &Advertisement) -> String {
    let topic = channel.topic.as_str();
    let mut recipe = format!("  topic      {topic} (kind {})\n", channel.kind);
    for hub in &channel.hubs {
        recipe += &format!("  hub        {hub}\n");
    }
    recipe += &format!("  discover   {}\n", curl_command(&["--head"], topic));
    for hub in &channel.hubs {
        let topic = format!("hub.topic={topic}");
        let callback = format!("hub.callback={CALLBACK}");
        let mut form = vec!["--data", "hub.mode=subscribe"];
        form.extend(["--data-urlencode", &topic, "--data-urlencode", &callback]);
        recipe += &format!("  subscribe  {}\n", curl_command(&form, hub.as_str()));
    }
    recipe + &format!("  listen     rsnotify listen {}", shell_quoted(topic))
}

fn curl_command(arguments: &[&str], uri: &str) -> String {
    let mut command = "curl".to_owned();
    // Otherwise these are patterns of several URIs.
    if uri.contains(['[', ']', '{', '}']) {
        command += " --globoff";
    }
    for argument in arguments.iter().chain([&uri]) {
        command.push(' ');
        command += &shell_quoted(argument);
    }
    command
}

/// Quotes a word for a shell.
fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use insta::assert_snapshot;
    use resourcesync::capability::ChannelKind;
    use resourcesync::document::Advertisement;
    use resourcesync::uri::{Hub, Topic};

    use super::{how_to_subscribe, shell_quoted};

    #[test]
    fn a_channel_is_discovered_subscribed_to_and_watched() {
        let channel = Advertisement {
            kind: ChannelKind::Framework,
            topic: Topic::new("https://e.org/t/?a=1&b='"),
            hubs: vec![Hub::new("https://h.example/"), Hub::new("http://[::1]/hub")],
        };
        assert_snapshot!(how_to_subscribe(&channel), @r"
        topic      https://e.org/t/?a=1&b=' (kind framework)
        hub        https://h.example/
        hub        http://[::1]/hub
        discover   curl --head 'https://e.org/t/?a=1&b='\'''
        subscribe  curl --data hub.mode=subscribe --data-urlencode 'hub.topic=https://e.org/t/?a=1&b='\''' --data-urlencode hub.callback=https://destination.example.net/callback/ https://h.example/
        subscribe  curl --globoff --data hub.mode=subscribe --data-urlencode 'hub.topic=https://e.org/t/?a=1&b='\''' --data-urlencode hub.callback=https://destination.example.net/callback/ 'http://[::1]/hub'
        listen     rsnotify listen 'https://e.org/t/?a=1&b='\'''
        ");
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in [
            "plain", "a b", "it's", "$HOME", "`x`", "a&b;c", "é\"\\", "*", "~", "#",
        ] {
            let script = format!("printf %s {}", shell_quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
