//! Runs a page from its first block to its last: executes the commands and compares their output.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::needs;
use crate::output::{appeared, is_shown};
use crate::page::{Block, CARGO, Page, repository};
use crate::sandbox::Sandbox;
use crate::terminal::Terminal;

pub struct Story<'a> {
    page: &'a Page,
    sandbox: Sandbox,
    terminals: BTreeMap<String, Terminal>,
    /// Output of the last commands that ran to their end.
    output: Option<String>,
}

impl Story<'_> {
    pub fn tell(page: &Page) {
        let mut story = Story {
            page,
            sandbox: Sandbox::new(),
            terminals: BTreeMap::new(),
            output: None,
        };
        story.set_up();
        for block in &page.blocks {
            if let Some(name) = block.mark("ctrl-c") {
                let code = story.terminal(block, name).interrupt();
                story.expect(block, code == Ok(0), || {
                    format!("Ctrl-C in {name}: {code:?}")
                });
            }
            match block.language.as_str() {
                "sh" => story.run(block),
                "text" | "diff" => story.compare(block),
                _ => {}
            }
        }
    }

    fn set_up(&mut self) {
        if let Some(script) = setup(self.page) {
            let script = self.sandbox.to_sandbox(&script);
            let mut terminal = Terminal::start(self.sandbox.shell(&script));
            let code = terminal.end();
            assert_eq!(code, Ok(0), "{}: {}", self.page.path, terminal.shown());
            // What it started in the background goes on.
            self.terminals.insert("setup".to_owned(), terminal);
        }
    }

    fn run(&mut self, block: &Block) {
        self.output = None;
        if block.mark("not run").is_some() {
            return;
        }
        if let Some(tool) = block.mark("needs")
            && needs::program(tool).is_none()
        {
            return;
        }
        let foreign = Sandbox::foreign_path(&block.text);
        self.expect(block, foreign.is_none(), || {
            format!("{foreign:?} is not for tests")
        });
        // The binary that is tested is built already.
        let commands = block.text.replace(CARGO, "rsnotify");
        let commands = self.sandbox.to_sandbox(&commands);
        let Some(name) = block.mark("terminal") else {
            let mut terminal = Terminal::start(self.sandbox.shell(&commands));
            let (code, output) = (terminal.end(), terminal.shown());
            let wanted = block.mark("exits with");
            let wanted = wanted.map_or(0, |code| code.parse().unwrap());
            self.expect(block, code == Ok(wanted), || {
                format!("exit code {code:?}\n{output}")
            });
            self.output = Some(output);
            return;
        };
        let mut terminal = Terminal::start(self.sandbox.shell(&commands));
        if let Some(text) = block.mark("wait for") {
            let waited = terminal.wait(|shown| shown.contains(text));
            self.expect(block, waited.is_ok(), || {
                format!("no {text:?} in\n{waited:?}")
            });
        }
        self.terminals.insert(name.to_owned(), terminal);
    }

    fn compare(&mut self, block: &Block) {
        if block.mark("not compared").is_some() {
            return;
        }
        if let Some(name) = block.mark("terminal") {
            let mut terminal = self.terminal(block, name);
            let shown = |shown: &str| appeared(&block.text, &self.sandbox.to_page(shown));
            let waited = terminal.wait(shown);
            self.expect(block, waited.is_ok(), || {
                format!("{name} shows something else:\n{}", waited.unwrap_err())
            });
            self.terminals.insert(name.to_owned(), terminal);
            return;
        }
        let Some(output) = &self.output else {
            panic!(
                "{}:{}: no command shows this; run one, or say `not compared` and why",
                self.page.path, block.line
            );
        };
        let output = self.sandbox.to_page(output);
        let is_met = match block.language.as_str() {
            // A part of what was shown, that it may be explained by itself.
            "diff" => appeared(&block.text, &output),
            _ => is_shown(&block.text, &output),
        };
        self.expect(block, is_met, || {
            format!("the command shows something else:\n{output}")
        });
    }

    /// Takes the terminal, which must exist.
    fn terminal(&mut self, block: &Block, name: &str) -> Terminal {
        let terminal = self.terminals.remove(name);
        self.expect(block, terminal.is_some(), || format!("no terminal {name}"));
        terminal.unwrap()
    }

    fn expect(&self, block: &Block, is_met: bool, otherwise: impl FnOnce() -> String) {
        if is_met {
            return;
        }
        let screens = self.terminals.iter();
        let screens = screens.map(|(name, it)| format!("\n--- terminal {name}\n{}", it.shown()));
        let screens: String = screens.collect();
        let (path, line) = (&self.page.path, block.line);
        panic!("{path}:{line}: {}\n{}{screens}", block.text, otherwise());
    }
}

/// Returns the commands that create what a page assumes.
pub fn setup(page: &Page) -> Option<String> {
    let name = Path::new(&page.path).with_extension("sh");
    let path = repository()
        .join("tests/docs/setup")
        .join(name.file_name()?);
    fs::read_to_string(path).ok()
}
