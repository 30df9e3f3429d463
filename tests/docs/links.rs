//! Links and paths exist. Nothing is fetched: other hosts are checked by name only.

use std::fs;
use std::path::PathBuf;

use regex::Regex;
use url::Url;

use crate::page::{Page, Piece, pages, repository};

/// Hosts that pages may link to.
const HOSTS: &str = "crates.io developers.google.com keepachangelog.com prometheus.io semver.org \
    taplo.tamasfe.dev www.freedesktop.org www.openarchives.org www.rfc-editor.org www.w3.org";

/// Prefixes of code spans that are paths in this repository.
const FOLDERS: &str = ".cargo/ .ci/ benches/ crates/ docs/ examples/ fuzz/ packaging/ src/ systemd/ templates/ tests/";

/// Returns the target of a link in `page`, relative to the root of the repository.
fn target(page: &Page, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.path.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn problem(page: &Page, link: &str, pages: &[Page]) -> Option<String> {
    if link.contains("://") {
        return match Url::parse(link) {
            // The reader's own machine, once something runs there.
            Ok(url) if url.host_str() == Some("localhost") => None,
            Ok(url) if url.scheme() != "https" => Some("is not https".to_owned()),
            Ok(url)
                if !url
                    .host_str()
                    .is_some_and(|host| HOSTS.split(' ').any(|it| it == host)) =>
            {
                Some("leads to a host that tests/docs/links.rs does not know".to_owned())
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.path.clone(),
        path => match target(page, path) {
            Some(target) => target,
            None => return Some("leads out of the repository".to_owned()),
        },
    };
    match pages.iter().find(|page| page.path == target) {
        None if !repository().join(&target).exists() => {
            Some(format!("leads to {target}, which does not exist"))
        }
        None if anchor.is_empty() => None,
        Some(page) if anchor.is_empty() || page.anchors.iter().any(|heading| heading == anchor) => {
            None
        }
        _ => Some(format!("leads to {target}, which has no heading #{anchor}")),
    }
}

/// Returns the links to headings of `docs/` in another file.
fn mentions(text: &str) -> Vec<&str> {
    let link = Regex::new(r"docs/[\w./-]+\.md#[\w-]+").unwrap();
    link.find_iter(text).map(|link| link.as_str()).collect()
}

fn is_path(span: &str) -> bool {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut folders = FOLDERS.split(' ');
    folders.any(|folder| span.starts_with(folder)) && span.chars().all(is_of_path)
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let mut problems = Vec::new();
    for page in &pages {
        let mut note = |piece: &Piece, problem: &str| {
            let (path, line, text) = (&page.path, piece.line, &piece.text);
            problems.push(format!("{path}:{line}: {text} {problem}"));
        };
        for link in &page.links {
            if let Some(problem) = problem(page, &link.text, &pages) {
                note(link, &problem);
            }
        }
        for span in page.spans.iter().filter(|span| is_path(&span.text)) {
            if !repository().join(&span.text).exists() {
                note(span, "does not exist");
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn other_files_speak_of_headings_that_exist() {
    let pages = pages();
    let mut paths = vec![repository().join("config.example.toml")];
    let folders = "crates examples packaging src systemd templates".split(' ');
    let mut folders: Vec<PathBuf> = folders.map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let found = if path.is_dir() {
                &mut folders
            } else {
                &mut paths
            };
            found.push(path);
        }
    }
    for path in paths {
        let text = fs::read(&path).unwrap();
        for link in mentions(&String::from_utf8_lossy(&text)) {
            let problem = problem(&Page::parse("FILE", ""), link, &pages);
            assert_eq!(problem, None, "{}: {link}", path.display());
        }
    }
    let text = "It is long. See docs/a.md#b-c, docs/d.md and\ndocs/e.md#f.";
    assert_eq!(mentions(text), ["docs/a.md#b-c", "docs/e.md#f"]);
}

#[test]
fn every_page_of_docs_is_found_from_the_readme() {
    let pages = pages();
    for page in pages.iter().filter(|page| page.path.starts_with("docs/")) {
        // Decisions have a list of their own.
        let (index, name) = match page.path.strip_prefix("docs/decisions/") {
            None | Some("README.md") => ("README.md", page.path.as_str()),
            Some(name) => ("docs/decisions/README.md", name),
        };
        let index = pages.iter().find(|page| page.path == index).unwrap();
        let is_linked = index.links.iter().any(|link| link.text == name);
        assert!(is_linked, "{} does not link to {}", index.path, page.path);
    }
}

#[test]
fn dead_links_are_noticed() {
    let pages = [
        Page::parse("docs/a.md", "# One heading\n"),
        Page::parse("docs/configuration.md", "# Other\n\n## `[server]`\n"),
    ];
    for (link, is_dead) in [
        ("configuration.md", false),
        ("configuration.md#server", false),
        ("#one-heading", false),
        ("../README.md", false),
        ("../src/lib.rs", false),
        ("https://www.w3.org/TR/websub/", false),
        ("http://localhost:8401/", false),
        ("configuration.md#client", true),
        ("#server", true),
        ("no-such-page.md", true),
        ("../../README.md", true),
        ("../../../README.md", true),
        ("http://www.w3.org/TR/websub/", true),
        ("https://www.example.org/", true),
        ("https://[/", true),
    ] {
        let problem = problem(&pages[0], link, &pages);
        assert_eq!(problem.is_some(), is_dead, "{link}: {problem:?}");
    }
}
