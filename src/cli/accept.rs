//! `accept`: the documents of a source that are missing now are deleted (R15).

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;
use serde_json::json;

use crate::announce::event::{Effect, Event};
use crate::announce::state::Save;
use crate::cli::options::{AcceptOptions, Exit};
use crate::cli::output::print;
use crate::cli::survey::take_up;
use crate::config::Config;
use crate::control::{self, Answer, Request};
use crate::daemon::accepted;
use crate::store::{Store, StoreError};

pub fn accept(file: Option<&Path>, options: &AcceptOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.tree.overrides())?;
    let source = options.source.as_str();
    let (documents, is_running) = match open(&config.state_dir) {
        Ok(Some(store)) => (accept_in(&config, store, source)?, false),
        Ok(None) => {
            take_up(&config, None)?.plan().source_named(source)?;
            (0, false)
        }
        Err(StoreError::InUse { .. }) => (accept_by_daemon(&config.state_dir, source)?, true),
        Err(error) => return Err(error.into()),
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

/// The state, if there is one: a new one would be the operator's, and the daemon may be another user.
fn open(state_dir: &Path) -> Result<Option<Store>, StoreError> {
    match Store::open_to_read(state_dir)? {
        Some(_) => Store::open(state_dir).map(Some),
        None => Ok(None),
    }
}

fn accept_by_daemon(state_dir: &Path, source: &str) -> anyhow::Result<usize> {
    let request = Request::Accept {
        source: source.to_owned(),
    };
    match control::ask(state_dir, &request)? {
        Answer::Accepted { documents, .. } => Ok(documents),
        Answer::Error(error) => anyhow::bail!(error),
    }
}

/// Only the acceptance is saved: whatever else the state gives rise to is the daemon's to do, and to tell.
fn accept_in(config: &Config, mut store: Store, source: &str) -> anyhow::Result<usize> {
    let mut engine = take_up(config, Some(&store))?;
    engine.plan().source_named(source)?;
    let event = Event::Accept {
        source: source.to_owned(),
    };
    let effects = engine.step(event, Timestamp::now());
    let mut save = Save::default();
    for effect in &effects {
        if let Effect::Save(all) = effect {
            let documents = all
                .documents
                .iter()
                .filter(|(_, record)| record.as_ref().is_some_and(|record| record.is_missing()));
            let documents = documents.map(|(uri, record)| (uri.clone(), record.clone()));
            save.documents.extend(documents);
        }
    }
    store
        .save(&save, &[], &[])
        .context("nothing was accepted")?;
    Ok(accepted(&effects))
}
