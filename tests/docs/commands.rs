//! Every command in the documentation is run, or marked with the reason why not.

use std::fs;

use crate::needs;
use crate::page::{Block, Page, pages};
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
    let is_run = |block: &&Block| {
        let is_marked = ["not run", "needs"].map(|mark| block.mark(mark).is_some());
        block.language == "sh" && is_marked == [false, false]
    };
    let run = page.blocks.iter().filter(is_run);
    let mut commands: String = run.map(|block| block.text.as_str()).collect();
    commands.extend(setup(page));
    let is_missing = |tool: &&str| needs::program(tool).is_none();
    let mut words = commands.split_whitespace();
    !words.any(|word| TOOLS.contains(&word) && is_missing(&word))
}

#[test]
fn commands_do_what_their_page_says() {
    let pages = pages();
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let stories = pages.iter().filter(|page| has_its_tools(page)).map(|page| {
            let story = std::thread::Builder::new().name(page.path.clone());
            (
                page,
                story.spawn_scoped(scope, || Story::tell(page)).unwrap(),
            )
        });
        let stories: Vec<_> = stories.collect();
        let told = stories.into_iter();
        let failed = told.filter_map(|(page, story)| story.join().err().map(|_| page));
        failed.map(|page| page.path.as_str()).collect()
    });
    assert!(failed.is_empty(), "see above: {failed:?}");
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
                assert!(is_known, "{path}:{line}: {mark:?} before {language}");
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
        let lines = library.lines().map_while(|line| line.strip_prefix("//!"));
        let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with("# ")).collect();
        let (_, shown) = readme.split_once("```rust\n").unwrap();
        let (shown, _) = shown.split_once("```").unwrap();
        let is_there = lines.join("\n").contains(shown);
        assert!(is_there, "crates/{name}: README.md and src/lib.rs differ");
    }
}
