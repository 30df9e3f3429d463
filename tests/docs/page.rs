//! A parsed page of Markdown: headings, links, code spans, and fenced blocks with the comments before them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The command by which the README starts the program from source.
pub const CARGO: &str = "cargo run --";

pub struct Page {
    /// Path from the root of the repository.
    pub path: String,
    /// Anchors of the headings.
    pub anchors: Vec<String>,
    pub links: Vec<Piece>,
    pub spans: Vec<Piece>,
    pub blocks: Vec<Block>,
    /// Texts of block quotes.
    pub quotes: Vec<Piece>,
}

/// A text with its first line number.
pub struct Piece {
    pub line: usize,
    pub text: String,
}

pub struct Block {
    pub line: usize,
    pub language: String,
    pub text: String,
    /// Comments directly before the block, by name, with the text after the colon.
    pub marks: BTreeMap<String, String>,
}

impl Block {
    pub fn mark(&self, name: &str) -> Option<&str> {
        self.marks.get(name).map(String::as_str)
    }
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every Markdown page of the repository, sorted.
pub fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    collect(repository(), &mut paths);
    paths.sort();
    paths.iter().map(|path| Page::read(path)).collect()
}

/// Collects pages, except in hidden and build directories.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let is_of_pages = !["target", "corpus", "artifacts"].contains(&name.as_str());
            if is_of_pages && !name.starts_with('.') {
                collect(&entry.path(), paths);
            }
        } else if name.ends_with(".md") {
            paths.push(entry.path());
        }
    }
}

impl Page {
    fn read(path: &Path) -> Page {
        let below = path.strip_prefix(repository()).unwrap();
        let text = fs::read_to_string(path).unwrap();
        Page::parse(below.to_str().unwrap(), &text)
    }

    pub fn parse(path: &str, text: &str) -> Page {
        let mut page = Page {
            path: path.to_owned(),
            anchors: Vec::new(),
            links: Vec::new(),
            spans: Vec::new(),
            blocks: Vec::new(),
            quotes: Vec::new(),
        };
        let line = |at: &Range<usize>| text[..at.start].matches('\n').count() + 1;
        let piece = |at: &Range<usize>, text: &str| Piece {
            line: line(at),
            text: text.to_owned(),
        };
        let mut heading: Option<String> = None;
        let mut block: Option<Block> = None;
        let mut quote: Option<Piece> = None;
        let mut marks = BTreeMap::new();
        for (event, at) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    block = Some(Block {
                        line: line(&at),
                        language: match kind {
                            CodeBlockKind::Fenced(language) => language.to_string(),
                            CodeBlockKind::Indented => String::new(),
                        },
                        text: String::new(),
                        marks: std::mem::take(&mut marks),
                    });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default(), &page.anchors);
                    page.anchors.push(anchor);
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(piece(&at, &dest_url));
                }
                Event::Html(html) => marks.extend(mark(&html)),
                Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => {}
                Event::Start(Tag::BlockQuote(_)) => quote = Some(piece(&at, "")),
                Event::End(TagEnd::BlockQuote(_)) => page.quotes.extend(quote.take()),
                Event::Text(text) => {
                    let block = block.as_mut().map(|block| &mut block.text);
                    let quote = quote.as_mut().map(|quote| &mut quote.text);
                    if let Some(whole) = block.or(heading.as_mut()).or(quote) {
                        whole.push_str(&text);
                    }
                }
                Event::Code(code) => {
                    // In a message, a command stands in such quotes too.
                    if let Some(quote) = &mut quote {
                        quote.text.push_str(&format!("`{code}`"));
                    } else if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    page.spans.push(piece(&at, &code));
                }
                _ => marks.clear(),
            }
        }
        page
    }
}

/// Returns name and text of a comment that is a mark.
fn mark(html: &str) -> Option<(String, String)> {
    let comment = html.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    let (name, value) = comment.split_once(':')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

/// Returns the anchor that GitHub gives to a heading.
fn anchor(heading: &str, taken: &[String]) -> String {
    let mut plain = heading.trim().to_lowercase();
    plain.retain(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let plain = plain.replace(' ', "-");
    let numbered = (1..).map(|number| format!("{plain}-{number}"));
    let mut anchors = std::iter::once(plain.clone()).chain(numbered);
    anchors
        .find(|anchor| !taken.contains(anchor))
        .unwrap_or_default()
}

#[test]
fn a_page_is_read_as_it_is_rendered() {
    let page = Page::parse(
        "page.md",
        "# `[server]` & more\n\n## Same\n## Same\n\nSee [it](a.md#b), `x.md`.\n\n\
         <!-- terminal: one -->\n<!-- wait for: ready: yes -->\n```sh\nrun\n```\n\nText.\n\n```text\nout\n```\n",
    );
    assert_eq!(page.anchors, ["server--more", "same", "same-1"]);
    let link = &page.links[0];
    assert_eq!((link.line, link.text.as_str()), (6, "a.md#b"));
    assert_eq!(page.spans[1].text, "x.md");
    let [command, output] = &page.blocks[..] else {
        panic!("two blocks")
    };
    assert_eq!((command.line, command.text.as_str()), (10, "run\n"));
    assert_eq!(command.mark("terminal"), Some("one"));
    assert_eq!(command.mark("wait for"), Some("ready: yes"));
    assert!(output.marks.is_empty());
}
