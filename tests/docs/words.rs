//! Commands, flags, variables and keys in the pages exist, and every command is mentioned.

use std::collections::BTreeSet;
use std::fs;

use clap::{Command, CommandFactory};
use rsnotify::cli::options::CommandLine;

use crate::page::{Block, CARGO, Page, pages};
use crate::sandbox::Sandbox;

/// Variables without a flag: those that tests read, and those that the command of `listen` finds.
const OTHER_VARIABLES: &str = "RSNOTIFY_FAILPOINT RSNOTIFY_FROM RSNOTIFY_MODEL_CASES \
    RSNOTIFY_MODEL_SEED RSNOTIFY_PORT RSNOTIFY_SERVICE_HOST RSNOTIFY_TEST_SUBSCRIBERS RSNOTIFY_TOPIC \
    RSNOTIFY_UNTIL";

fn program() -> Command {
    let mut program = CommandLine::command();
    program.build();
    program
}

/// A text in code format.
struct Code {
    line: usize,
    text: String,
    /// True for a line of a block of commands, false for a span in a sentence.
    is_typed: bool,
}

fn code(page: &Page) -> Vec<Code> {
    let spans = page.spans.iter().map(|span| Code {
        line: span.line,
        text: span.text.clone(),
        is_typed: false,
    });
    let blocks = page.blocks.iter().filter(|block| block.language == "sh");
    let typed = blocks.flat_map(|block| {
        // A line that ends in a backslash goes on in the next one.
        let text = block.text.replace("\\\n", " ").replace(" --release", "");
        let text = text.replace(CARGO, "rsnotify");
        let lines = text.lines().map(|line| Code {
            line: block.line,
            text: line.to_owned(),
            is_typed: true,
        });
        lines.collect::<Vec<_>>()
    });
    spans.chain(typed).collect()
}

/// Returns the words of each call of rsnotify.
fn calls(code: &Code) -> Vec<Vec<&str>> {
    let words: Vec<&str> = code.text.split_whitespace().collect();
    let starts = words.iter().enumerate().filter(|(at, word)| {
        let before = at.checked_sub(1).map(|before| words[before]);
        word.trim_start_matches("$(") == "rsnotify"
            && before.is_none_or(|before| code.is_typed && !takes_a_name(before))
    });
    starts
        .map(|(at, _)| {
            let rest = words[at + 1..].iter().copied();
            rest.take_while(|word| !ends_a_call(word)).collect()
        })
        .collect()
}

/// Returns true if the next word is the user, unit or package of that name.
fn takes_a_name(word: &str) -> bool {
    [
        "--now", "--unit", "-u", "edit", "install", "purge", "reload", "remove", "restart",
        "start", "status", "stop",
    ]
    .contains(&word)
}

fn ends_a_call(word: &str) -> bool {
    word.starts_with(['|', '>', '<', '&', ';', '#', ')']) || word.starts_with("2>")
}

/// Returns the names of a call's commands, or the mistake in it.
fn follow(program: &Command, call: &[&str]) -> Result<Vec<String>, String> {
    let mut command = program;
    let mut path = Vec::new();
    for word in call {
        let word = word.trim_end_matches([')', ';', ',']);
        if let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) {
            let flag = flag.split('=').next().unwrap_or(flag);
            if !has_flag(command, flag) {
                return Err(format!("`{}` has no --{flag}", command.get_name()));
            }
        } else if let Some(next) = command.find_subcommand(word) {
            path.push(next.get_name().to_owned());
            command = next;
        } else if command.has_subcommands() && word.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(format!("`{}` has no command {word}", command.get_name()));
        }
    }
    Ok(path)
}

fn has_flag(command: &Command, flag: &str) -> bool {
    command
        .get_arguments()
        .any(|argument| argument.get_long() == Some(flag))
}

fn every_command(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().flat_map(every_command);
    std::iter::once(command).chain(below).collect()
}

#[test]
fn commands_flags_and_variables_exist() {
    let program = program();
    let commands = every_command(&program);
    let arguments = commands.iter().flat_map(|command| command.get_arguments());
    let variables = arguments.filter_map(|argument| argument.get_env()?.to_str());
    let variables: BTreeSet<&str> = variables.chain(OTHER_VARIABLES.split(' ')).collect();
    let mut problems = Vec::new();
    for page in pages() {
        for code in code(&page) {
            let mut note =
                |problem: String| problems.push(format!("{}:{}: {problem}", page.path, code.line));
            for call in calls(&code) {
                if let Err(problem) = follow(&program, &call) {
                    note(problem);
                }
            }
            // A flag that stands alone in the text is one of ours.
            let flag = code.text.strip_prefix("--");
            let flag = flag.and_then(|flag| flag.split([' ', '=']).next());
            if flag.is_some_and(|flag| !commands.iter().any(|command| has_flag(command, flag))) {
                note(format!("there is no {}", code.text));
            }
            let ends_a_word = |c: char| !c.is_ascii_uppercase() && c != '_';
            for word in code.text.split(ends_a_word) {
                let is_ours = word.starts_with("RSNOTIFY_") && word.len() > "RSNOTIFY_".len();
                if is_ours && !variables.contains(word) {
                    note(format!("there is no {word}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_command_is_mentioned() {
    let program = program();
    let mut mentioned = BTreeSet::new();
    for page in pages() {
        for code in code(&page) {
            let followed = calls(&code).into_iter().map(|call| follow(&program, &call));
            mentioned.extend(followed.flatten().map(|path| path.join(" ")));
        }
    }
    for path in program.get_subcommands().flat_map(paths) {
        let is_mentioned = mentioned.contains(&path);
        assert!(is_mentioned, "no page mentions `rsnotify {path}`");
    }
}

/// Returns each command with its subcommands as typed.
fn paths(command: &Command) -> Vec<String> {
    let name = command.get_name();
    let below: Vec<String> = command.get_subcommands().flat_map(paths).collect();
    match (name, &below[..]) {
        ("help", _) => Vec::new(),
        (_, []) => vec![name.to_owned()],
        _ => below.iter().map(|path| format!("{name} {path}")).collect(),
    }
}

#[test]
fn configurations_are_valid() {
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "toml") {
            if let Err(said) = load(block) {
                panic!("{}:{}: {}\n{said}", page.path, block.line, block.text);
            }
        }
    }
}

/// Checks a part of a configuration together with the required keys, and returns the errors.
fn load(block: &Block) -> Result<(), String> {
    let mut text = block.text.clone();
    // `rsnotify hub` has a configuration of its own, without sources.
    let tables = ["[[source]]", "[[publisher]]", "\n[hub]"];
    if !tables.iter().any(|table| text.contains(table)) {
        text.push_str("\n[[source]]\nname = \"main\"\n");
        text.push_str("mount = [{ path = \"/srv/www\", url = \"https://example.org/\" }]\n");
    }
    let sandbox = Sandbox::new();
    let commands = "rsnotify check --no-environment --config /etc/rsnotify/page.toml";
    let text = sandbox.to_sandbox(&text);
    for (name, text) in [
        ("page.toml", &*text),
        ("hub-token", "secret\n"),
        ("library", "secret\n"),
    ] {
        fs::write(sandbox.to_sandbox(&format!("/etc/rsnotify/{name}")), text).unwrap();
    }
    let mut shell = sandbox.shell(&sandbox.to_sandbox(commands));
    shell.env("CREDENTIALS_DIRECTORY", sandbox.to_sandbox("/etc/rsnotify"));
    let output = shell.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(errors)
}

#[test]
fn what_does_not_exist_is_noticed() {
    let program = program();
    for (text, is_known) in [
        ("rsnotify run --root a --url b", true),
        ("rsnotify outbox show CHANNEL HUB --payload", true),
        ("rsnotify advertise --entry | patch --strip 0", true),
        ("rsnotify check --json > a.json", true),
        ("systemctl status rsnotify --no-pager", true),
        ("rsnotify outbox forget", false),
        ("rsnotify watch", false),
        ("rsnotify scan --hub x", false),
        ("a && rsnotify scan --no-such", false),
    ] {
        let code = Code {
            line: 1,
            text: text.to_owned(),
            is_typed: true,
        };
        let mut calls = calls(&code).into_iter();
        let is_followed = calls.all(|call| follow(&program, &call).is_ok());
        assert_eq!(is_followed, is_known, "{text}");
    }
    let page = Page::parse("page.md", "```toml\n[window]\nquite = \"2s\"\n```\n");
    assert!(load(&page.blocks[0]).is_err());
}
