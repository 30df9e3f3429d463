//! Every command in the documentation is run, or marked with the reason why not.

use std::fs;

use crate::needs;
use crate::page::{Page, pages};
use crate::story::{Story, setup};

/// Permitted languages of blocks. Commands must be `sh`, so that none is overlooked.
const LANGUAGES: [&str; 13] = [
    "apache", "caddy", "diff", "ini", "json", "nginx", "promql", "rust", "sh", "text", "toml",
    "xml", "yaml",
];

/// Permitted marks before a block of commands, and before their output.
const MARKS: [(&str, &[&str]); 3] = [
    (
        "sh",
        &[
            "not run",
            "needs",
            "terminal",
            "wait for",
            "ctrl-c",
            "exits with",
        ],
    ),
    ("text", &["not compared", "terminal"]),
    ("diff", &["not compared"]),
];

/// Programs that not every machine has.
const TOOLS: [&str; 7] = [
    "curl", "nginx", "patch", "python3", "rsync", "sqlite3", "xmllint",
];

/// Returns true if every tool in a page's commands is installed, except in blocks that are marked with their needs.
fn has_its_tools(page: &Page) -> bool {
    let blocks = page.blocks.iter().filter(|block| block.language == "sh");
    let run =
        blocks.filter(|block| block.mark("not run").is_none() && block.mark("needs").is_none());
    let mut commands: String = run.map(|block| block.text.as_str()).collect();
    commands.extend(setup(page));
    let mut tools = TOOLS
        .into_iter()
        .filter(|tool| commands.split_whitespace().any(|word| word == *tool));
    tools.all(|tool| needs::program(tool).is_some())
}

#[test]
fn commands_do_what_their_page_says() {
    let pages = pages();
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let stories: Vec<_> = pages
            .iter()
            .map(|page| {
                let story = std::thread::Builder::new().name(page.path.clone());
                (page, story.spawn_scoped(scope, || tell(page)).unwrap())
            })
            .collect();
        let told = stories
            .into_iter()
            .map(|(page, story)| (page, story.join()));
        told.filter(|(_, outcome)| outcome.is_err())
            .map(|(page, _)| page.path.as_str())
            .collect()
    });
    assert!(failed.is_empty(), "see above: {failed:?}");
}

fn tell(page: &Page) {
    if has_its_tools(page) {
        Story::tell(page);
    }
}

#[test]
fn blocks_and_their_marks_are_known() {
    for page in pages() {
        for block in &page.blocks {
            let (path, line, language) = (&page.path, block.line, block.language.as_str());
            assert!(
                LANGUAGES.contains(&language),
                "{path}:{line}: a block in {language:?}; commands are `sh`"
            );
            let known = MARKS.iter().find(|(marked, _)| *marked == language);
            for (mark, value) in &block.marks {
                let is_known = known.is_some_and(|(_, marks)| marks.contains(&mark.as_str()));
                assert!(
                    is_known,
                    "{path}:{line}: {mark:?} means nothing before {language}"
                );
                assert!(!value.is_empty(), "{path}:{line}: say more: {mark}");
            }
        }
    }
}

/// A README cannot be tested: it has the example that its crate's documentation begins with, without what that hides.
#[test]
fn examples_of_the_crates_are_those_that_are_tested() {
    for name in ["destination", "resourcesync", "websub"] {
        let text = |path| fs::read_to_string(format!("crates/{name}/{path}")).unwrap();
        let (library, readme) = (text("src/lib.rs"), text("README.md"));
        let documentation = library
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .filter(|line| !line.starts_with("# "));
        let documentation: Vec<&str> = documentation.collect();
        let documentation = documentation.join("\n");
        let (_, shown) = readme.split_once("```rust\n").unwrap();
        let (shown, _) = shown.split_once("```").unwrap();
        assert!(
            documentation.contains(shown),
            "crates/{name}: README.md and src/lib.rs differ"
        );
    }
}
