//! `check`: what is wrong with the configuration and the tree.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::announce::engine::DocumentState;
use crate::cli::options::{CheckOptions, Exit};
use crate::cli::output::print;
use crate::cli::survey::survey;
use crate::config::Config;
use crate::daemon::settings;

pub fn check(file: Option<&Path>, options: &CheckOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.tree.overrides())?;
    // Certificates and headers that no request could be made with are the configuration's fault.
    settings::publishers(&config)?;
    let mut findings = Vec::new();
    let mut documents = 0;
    if !options.no_environment {
        let survey = survey(&config)?;
        findings.extend(survey.notices.iter().cloned());
        for document in survey.engine.documents() {
            documents += 1;
            if document.state == DocumentState::Broken {
                let reason = document.reason.unwrap_or_default();
                findings.push(format!("{}: {reason}", document.path));
            }
        }
        findings.extend(survey.engine.findings().iter().map(ToString::to_string));
        findings.extend(survey.suspensions());
    }
    print(|out| {
        if options.json {
            let answer = json!({ "version": 1, "documents": documents, "findings": findings });
            return writeln!(out, "{answer:#}");
        }
        for finding in &findings {
            writeln!(out, "{finding}")?;
        }
        match (findings.len(), options.no_environment) {
            (0, true) => writeln!(out, "the configuration is fine"),
            (0, false) => writeln!(out, "the configuration and {documents} documents are fine"),
            (count, _) => writeln!(out, "{count} findings"),
        }
    })?;
    Ok(if findings.is_empty() {
        Exit::Fine
    } else {
        Exit::Failure
    })
}
