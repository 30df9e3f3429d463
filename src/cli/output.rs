//! Prints answers; whoever closes the pipe has seen enough.

use std::io::{self, StdoutLock, Write};

use serde::Serialize;

pub use crate::announce::status::words::{counted, next_try, relative, when};

/// Writes to standard output.
pub fn print(write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[derive(Serialize)]
struct Printed<'a, T> {
    version: u64,
    running: bool,
    #[serde(flatten)]
    answer: &'a T,
}

/// Prints an answer as JSON: with the version of its shape, and whether a daemon gave it.
pub fn print_json<T: Serialize>(running: bool, answer: &T) -> anyhow::Result<()> {
    let printed = Printed {
        version: 1,
        running,
        answer,
    };
    let text = serde_json::to_string_pretty(&printed)?;
    Ok(print(|out| writeln!(out, "{text}"))?)
}

/// Lines in columns; `numbers` are the columns that stand right.
pub fn aligned<const N: usize>(lines: &[[String; N]], numbers: &[usize]) -> Vec<String> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let lengths = lines.iter().map(|line| line[column].chars().count());
        lengths.max().unwrap_or_default()
    });
    let cells = |line: &[String; N]| -> Vec<String> {
        let cells = line.iter().zip(widths).enumerate();
        cells
            .map(|(column, (cell, width))| match numbers.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect()
    };
    lines.iter().map(|line| cells(line).join("  ")).collect()
}
