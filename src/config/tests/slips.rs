//! What was misspelt is named with what was probably meant, all of it at once.

use crate::config::overrides::Overrides;
use crate::config::tests::{SOURCE, message, read};

/// What is said of a file, without its path.
fn said(text: &str) -> Vec<String> {
    let message = message(read(text, &Overrides::default()));
    let lines = message.lines();
    lines
        .map(|line| line.strip_prefix("/etc/c.toml:").unwrap_or(line).to_owned())
        .collect()
}

#[test]
fn every_misspelt_table_is_named_with_the_one_that_was_meant() {
    for (table, meant) in [
        ("[[hubs]]", "hub"),
        ("[[sources]]", "source"),
        ("[[channels]]", "channel"),
        ("[Server]", "server"),
        ("[windows]", "window"),
        ("[embedded-hub]", "embedded_hub"),
    ] {
        let (start, name) = (
            table.rfind('[').unwrap() + 2,
            table.trim_matches(['[', ']']),
        );
        let want = format!("5:{start}: {name}: there is no such key; did you mean \"{meant}\"?");
        assert_eq!(said(&format!("{SOURCE}{table}\n")), [want]);
    }
}

#[test]
fn a_table_that_is_written_as_another_kind_is_told_how_to_be_written() {
    for (text, want) in [
        (
            "[hub]\nurl = \"https://h.example/\"\n",
            "5:1: hub: it may stand several times: write [[hub]], or a list [{ … }]",
        ),
        (
            "[[window]]\n",
            "5:1: window: it stands once only: write [window]",
        ),
    ] {
        assert_eq!(said(&format!("{SOURCE}{text}")), [want]);
    }
}

#[test]
fn all_slips_are_named_at_once() {
    let text = format!(
        "stat_dir = \"a\"\n{SOURCE}setle = \"1s\"\nwatch = 3\nexclude = [1, 2]\n[sever]\nlisten = \"x\"\n\
         [[hub]]\nurl = \"https://h.example/\"\nheaders = {{ A = 1 }}\nmod = \"ping\"\ntimeout = 30\n\
         [[hub]]\nurl = 7\ntime_out = \"1s\"\n"
    );
    assert_eq!(
        said(&text),
        [
            "1:1: stat_dir: there is no such key; did you mean \"state_dir\"?",
            "6:1: source.setle: there is no such key; did you mean \"settle\"?",
            "7:9: source.watch: invalid type: integer `3`, expected a string",
            "8:12: source.exclude: invalid type: integer `1`, expected a string",
            "9:2: sever: there is no such key; did you mean \"server\"?",
            "13:17: hub.A: expected a text, { file = \"...\" }, { env = \"...\" } or { credential = \"...\" }",
            "14:1: hub.mod: there is no such key; did you mean \"mode\"?",
            "15:11: hub.timeout: invalid type: integer `30`, expected a string",
            "17:7: hub.url: invalid type: integer `7`, expected a string",
            "18:1: hub.time_out: there is no such key; did you mean \"timeout\"?",
        ]
    );
}
