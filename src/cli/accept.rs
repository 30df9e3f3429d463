//! `accept`: the documents of a source that are missing now are deleted (R15).

use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::cli::asking::{Asked, unexpected};
use crate::cli::options::{AcceptOptions, Exit};
use crate::cli::output::print;
use crate::control::{Answer, Request};

pub fn accept(file: Option<&Path>, options: &AcceptOptions) -> anyhow::Result<Exit> {
    let daemon = Asked::new(file, &options.tree)?;
    let source = options.source.as_str();
    let request = Request::Accept {
        source: source.to_owned(),
    };
    let (Answer::Accepted { documents, .. }, is_running) = daemon.ask(request)? else {
        return Err(unexpected());
    };
    print(|out| {
        if options.json {
            let answer = json!({
                "version": 1,
                "source": source,
                "accepted": documents,
                "running": is_running,
            });
            return writeln!(out, "{answer:#}");
        }
        match (documents, is_running) {
            (0, true) => writeln!(out, "no document of {source} is missing"),
            (0, false) => writeln!(
                out,
                "no document of {source} was missing when rsnotify last looked, and it is not running"
            ),
            (_, true) => writeln!(
                out,
                "accepted {documents} missing documents of {source} as deleted"
            ),
            (_, false) => writeln!(
                out,
                "accepted {documents} missing documents of {source} as deleted; rsnotify is not running, and \
                 announces it when it is started"
            ),
        }
    })?;
    Ok(Exit::Fine)
}
