//! `check`: what is wrong with the configuration, the tree, the machine, and the way to topics and hubs.
//!
//! Nothing is bound, saved or told. What was seen is joined here and judged in
//! [`announce::inspection`](crate::announce::inspection).

mod machine;
mod network;

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use serde_json::json;

use crate::announce::engine::{DocumentState, DocumentView};
use crate::announce::inspection::{Remark, Weight, clock, hub};
use crate::cli::options::{CheckOptions, Exit};
use crate::cli::output::print;
use crate::cli::survey::{Survey, survey, survey_without_state};
use crate::config::Config;
use crate::config::address::Address;
use crate::daemon::report::chain;
use crate::daemon::settings;
use crate::resourcesync::escape::escaped;
use crate::store::StoreError;
use crate::websub::publish::HubSettings;

/// What concerns one part of what was looked at.
struct Section {
    title: &'static str,
    remarks: Vec<Remark>,
}

impl Section {
    fn new(title: &'static str, remarks: Vec<Remark>) -> Section {
        Section { title, remarks }
    }
}

pub fn check(file: Option<&Path>, options: &CheckOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.overrides())?;
    // Certificates and headers that no request could be made with are the configuration's fault.
    let hubs = settings::publishers(&config)?;
    let mut sections = Vec::new();
    let mut documents = 0;
    let mut unverified = unverified(&hubs);
    unverified.extend(unnamed_proxy(&config));
    if options.no_environment {
        sections.push(Section::new("hubs", unverified));
    } else {
        let (survey, state) = surveyed(&config)?;
        let views = survey.engine.documents();
        documents = views.len();
        sections.push(Section::new("tree", tree(&survey, views)));
        sections.extend(machine::sections(&config, &survey, state));
        sections.extend(network::sections(&config, &survey, hubs, unverified)?);
    }
    let of = |weight| {
        let remarks = sections.iter().flat_map(|section| &section.remarks);
        let remarks = remarks.filter(move |remark| remark.weight == weight);
        remarks.map(Remark::line).collect::<Vec<String>>()
    };
    let findings = of(Weight::Finding);
    print(|out| {
        if options.json {
            let notes = of(Weight::Note);
            let answer = json!({
                "version": 1,
                "documents": documents,
                "findings": findings,
                "notes": notes,
            });
            return writeln!(out, "{answer:#}");
        }
        for section in &sections {
            write_section(out, section)?;
        }
        match (findings.len(), options.no_environment) {
            (0, true) => writeln!(out, "the configuration is fine"),
            (0, false) => writeln!(out, "the configuration and {documents} documents are fine"),
            (1, _) => writeln!(out, "1 finding"),
            (count, _) => writeln!(out, "{count} findings"),
        }
    })?;
    Ok(match findings.is_empty() {
        true => Exit::Fine,
        false => Exit::Failure,
    })
}

/// Looks at the trees, beside the state if it can be used; and why not.
fn surveyed(config: &Config) -> anyhow::Result<(Survey, Option<Remark>)> {
    let error = match survey(config) {
        Ok(survey) => return Ok((survey, None)),
        Err(error) => error,
    };
    let remark = match error.downcast_ref() {
        // That is about who looks.
        Some(error @ StoreError::Denied { .. }) => Remark::note(chain(error), ""),
        Some(error) => Remark::finding(chain(error), ""),
        None => return Err(error),
    };
    Ok((survey_without_state(config)?, Some(remark)))
}

fn unverified(hubs: &[HubSettings]) -> Vec<Remark> {
    let trusting = hubs.iter().filter(|hub| hub.danger_accept_invalid_certs);
    trusting
        .map(|settings| hub::unverified(&settings.hub))
        .collect()
}

fn unnamed_proxy(config: &Config) -> Option<Remark> {
    let embedded = config.embedded_hub.as_ref()?;
    let public_url = config.server.public_url.as_ref()?;
    let Address::Tcp(listen) = &config.server.listen else {
        return None;
    };
    let has_proxies = !embedded.trusted_proxies.is_empty();
    hub::unnamed_proxy(public_url.as_str(), *listen, has_proxies)
}

fn tree(survey: &Survey, documents: Vec<DocumentView>) -> Vec<Remark> {
    let broken = documents
        .into_iter()
        .filter(|document| document.state == DocumentState::Broken)
        .map(|document| {
            let reason = document.reason.unwrap_or_default();
            format!("{}: {reason}", document.path)
        });
    let findings = survey.engine.findings();
    let findings = findings.iter().map(ToString::to_string);
    let notices = survey.notices.iter().cloned();
    let all = notices
        .chain(broken)
        .chain(findings)
        .chain(survey.suspensions());
    let mut remarks: Vec<Remark> = all.map(|words| Remark::finding(words, "")).collect();
    remarks.extend(machine::unreadable(survey));
    if let Some((path, changed)) = &survey.latest {
        remarks.extend(clock::file_system(path, *changed, Timestamp::now()));
    }
    remarks
}

fn write_section(out: &mut impl Write, section: &Section) -> io::Result<()> {
    if section.remarks.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", section.title)?;
    for remark in &section.remarks {
        let note = match remark.weight {
            Weight::Finding => "",
            Weight::Note => "note: ",
        };
        writeln!(out, "  {note}{}", escaped(&remark.seen))?;
        if !remark.remedy.is_empty() {
            writeln!(out, "      {}", escaped(&remark.remedy))?;
        }
    }
    writeln!(out)
}
