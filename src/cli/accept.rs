//! `accept`: counts the missing documents and resources of a source as deleted (R15, C29).

use std::io::{self, Write};
use std::path::Path;

use resourcesync::escape::escaped;
use serde_json::json;

use crate::cli::Exit;
use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::AcceptOptions;
use crate::control::{ControlReply, ControlRequest};
use crate::report::status::AcceptableDeletions;
use crate::report::status::words::accepted_in_words;

pub fn accept(file: Option<&Path>, options: &AcceptOptions) -> anyhow::Result<Exit> {
    let daemon = &mut DaemonClient::new(file, &options.ask)?;
    let source = options.source.as_str();
    if options.dry_run {
        return print_missing(daemon, source);
    }
    let request = ControlRequest::Accept {
        source: source.to_owned(),
    };
    let ControlReply::Accepted {
        documents,
        resources,
        ..
    } = daemon.ask(request)?
    else {
        return Err(unexpected_answer());
    };
    let absent = match documents + resources {
        0 => ask_missing(daemon, source)?.absent,
        _ => Vec::new(),
    };
    let mut answer = json!({ "source": source, "accepted": documents });
    if resources > 0 {
        answer["resources"] = resources.into();
    }
    daemon.print_answer(&answer, |out| {
        let accepted = accepted_in_words(documents, resources);
        match (documents + resources, daemon.is_running) {
            (0, _) => write_none_missing(out, source, daemon.is_running),
            (_, true) => writeln!(out, "accepted {accepted} of {source} as deleted"),
            (_, false) => writeln!(
                out,
                "accepted {accepted} of {source} as deleted; rsnotify is not running, and announces it when it is started"
            ),
        }?;
        write_unacceptable(out, &absent)
    })
}

fn ask_missing(daemon: &mut DaemonClient<'_>, source: &str) -> anyhow::Result<AcceptableDeletions> {
    let source = source.to_owned();
    match daemon.ask(ControlRequest::Missing { source })? {
        ControlReply::Missing(missing) => Ok(missing),
        _ => Err(unexpected_answer()),
    }
}

/// Prints what would be accepted.
fn print_missing(daemon: &mut DaemonClient<'_>, source: &str) -> anyhow::Result<Exit> {
    let missing = ask_missing(daemon, source)?;
    let (source, documents) = (&missing.source, missing.documents);
    let resources = missing.sets.iter().map(|(_, missing, _)| missing).sum();
    let mut answer = json!({
        "source": source,
        "dry_run": true,
        "accepted": 0,
        "missing": documents,
        "directories": missing.directories,
        "absent": missing.absent,
    });
    if resources > 0 {
        let all = missing.sets.iter();
        let sets = all.map(|(set, missing, of)| json!({"set": set, "missing": missing, "of": of}));
        answer["resources"] = sets.collect();
    }
    daemon.print_answer(&answer, |out| {
        if documents + resources == 0 {
            write_none_missing(out, source, daemon.is_running)?;
        } else {
            let missing = accepted_in_words(documents, resources);
            writeln!(out, "{missing} of {source} would be accepted as deleted:")?;
        }
        for directory in &missing.directories {
            writeln!(out, "  {}", escaped(&directory.to_string()))?;
        }
        for (set, missing, of) in &missing.sets {
            writeln!(out, "  {missing} of {of} resources of {set}")?;
        }
        write_unacceptable(out, &missing.absent)
    })
}

fn write_none_missing(out: &mut impl Write, source: &str, is_running: bool) -> io::Result<()> {
    if is_running {
        writeln!(out, "no document of {source} is missing")
    } else {
        writeln!(
            out,
            "no document of {source} was missing when rsnotify last looked, and it is not running"
        )
    }
}

fn write_unacceptable(out: &mut impl Write, absent: &[String]) -> io::Result<()> {
    for directory in absent {
        let directory = escaped(directory);
        writeln!(
            out,
            "{directory} is not there: nothing below it can be accepted"
        )?;
    }
    Ok(())
}
