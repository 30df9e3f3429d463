//! Rust sources for the house rules: lines without comments and texts, with tests marked.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A Rust file, with comments and the content of texts blanked out, line by line.
pub struct SourceFile {
    /// From the root of the repository, with `/`.
    pub path: String,
    pub text: String,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub code: String,
    /// True if it belongs to an item that exists only in tests.
    pub is_test: bool,
}

impl SourceFile {
    /// The first folder below `src/`, the name of a file directly in it, or the name of a crate.
    pub fn part(&self) -> Option<&str> {
        if let Some(below) = self.path.strip_prefix("crates/") {
            let (name, file) = below.split_once('/')?;
            return file.starts_with("src/").then_some(name);
        }
        let below = self.path.strip_prefix("src/")?;
        let name = below.split('/').next().unwrap_or(below);
        Some(name.trim_end_matches(".rs"))
    }

    /// The module that a file of a crate is, such as `websub::hub::verification`.
    pub fn crate_module(&self) -> Option<String> {
        let (name, file) = self.path.strip_prefix("crates/")?.split_once("/src/")?;
        Some(match file.trim_end_matches(".rs") {
            "lib" => name.to_owned(),
            file => format!("{name}::{}", file.replace('/', "::")),
        })
    }

    /// Returns what is wrong in a line.
    pub fn at(&self, line: usize, what: impl Display) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    /// The lines outside tests, numbered from 1.
    pub fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines.iter().enumerate();
        numbered
            .filter(|(_, line)| !line.is_test)
            .map(|(at, line)| (at + 1, line.code.as_str()))
    }
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the package and of the crates, without those of tests, benches and fuzz targets, in order.
pub fn code_files() -> Vec<SourceFile> {
    let mut files = source_files(&["src", "crates"]);
    files.retain(|file| file.part().is_some());
    files
}

/// Every Rust file below the folders, in order.
pub fn source_files(folders: &[&str]) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    for folder in folders {
        collect(&repository().join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let path = path
                .strip_prefix(repository())
                .unwrap()
                .to_str()
                .unwrap()
                .replace('\\', "/");
            let is_code =
                path.starts_with("src/") || path.starts_with("crates/") && path.contains("/src/");
            let is_test_file = !is_code || path.ends_with("/tests.rs") || path.contains("/tests/");
            SourceFile {
                lines: lines(&text, is_test_file),
                path,
                text,
            }
        })
        .collect()
}

/// The modules of crates that exist only with a feature, such as `websub::hub::verification::http`.
pub fn feature_modules(files: &[SourceFile]) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for file in files {
        let Some(parent) = file.crate_module() else {
            continue;
        };
        for lines in file.lines.windows(2) {
            let is_featured =
                lines[0].code.starts_with("#[cfg(") && lines[0].code.contains("feature");
            let declared = lines[1].code.strip_suffix(';').filter(|_| is_featured);
            let name = declared.and_then(|code| code.split_once("mod "));
            modules.extend(name.map(|(_, name)| format!("{parent}::{name}")));
        }
    }
    modules
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else {
            paths.push(path);
        }
    }
}

fn lines(text: &str, is_test_file: bool) -> Vec<Line> {
    let code = without_comments_and_texts(text);
    // The code is formatted: an item ends with the first line that closes at its own indentation.
    let mut test_item: Option<(usize, bool)> = None;
    code.lines()
        .map(|code| {
            let indentation = code.len() - code.trim_start().len();
            let trimmed = code.trim();
            if test_item.is_none() && is_test_attribute(trimmed) {
                test_item = Some((indentation, false));
            }
            let is_test = is_test_file || test_item.is_some();
            if let Some((item_indentation, has_begun)) = &mut test_item {
                let is_attribute = trimmed.starts_with("#[") || trimmed.is_empty();
                let is_at_level = indentation == *item_indentation && !is_attribute;
                let closes = is_at_level
                    && (trimmed.ends_with(';') || trimmed.ends_with('}') || trimmed.ends_with(','));
                if closes || (*has_begun && is_at_level && trimmed.starts_with('}')) {
                    test_item = None;
                } else {
                    *has_begun |= !is_attribute;
                }
            }
            Line {
                code: code.to_owned(),
                is_test,
            }
        })
        .collect()
}

fn is_test_attribute(trimmed: &str) -> bool {
    trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test")
}

/// The text with the same lines, in which comments, texts and characters are blank.
fn without_comments_and_texts(text: &str) -> String {
    static SKIPPED: LazyLock<Regex> = LazyLock::new(|| {
        let skipped = [
            r"//.*",
            r"/\*(?s:.*?)\*/",
            r#"\bb?r"[^"]*""#,
            r##"\bb?r#"(?s:.*?)"#"##,
            r#""(?s:[^"\\]|\\.)*""#,
            r"'(?:[^'\\]|\\[^']+|\\')'",
        ];
        Regex::new(&skipped.join("|")).unwrap()
    });
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    let blank = |found: &Captures<'_>| found[0].chars().map(blank).collect::<String>();
    SKIPPED.replace_all(text, blank).into_owned()
}

#[test]
fn comments_and_texts_do_not_count() {
    for (source, code) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b\n c */ e", "a     \n      e"),
        ("x(\"a\\\"b\") y", "x(      ) y"),
        ("r#\"a\"b\"# c", "         c"),
        ("br\"a\" c", "      c"),
        ("'\"' 'a '\\n' b", "    'a      b"),
        ("for r in x", "for r in x"),
    ] {
        assert_eq!(without_comments_and_texts(source), code, "{source}");
    }
}

#[test]
fn test_items_are_told_from_the_rest() {
    let text = "#[cfg(test)]\nmod tests;\nfn a() {\n}\n#[cfg(test)]\nuse b::c;\n#[cfg(test)]\n#[expect(x)]\nfn d(\n    e: F,\n) {\n    g\n}\nfn h() {}\n#[cfg(test)]\nmod tests {\n    fn i() {\n    }\n}\nj\n";
    let production: Vec<String> = lines(text, false)
        .into_iter()
        .filter(|line| !line.is_test)
        .map(|line| line.code)
        .collect();
    assert_eq!(production, ["fn a() {", "}", "fn h() {}", "j"]);
}
