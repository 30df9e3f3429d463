//! Output of commands; a closed pipe is no error.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

use resourcesync::escape::escaped_lines;

use crate::cli::Exit;
pub use crate::report::status::words::{
    counted, grouped, next_try_in_words, relative, relative_with_time,
};
pub use resourcesync::escape::{escaped, excerpt};

/// The maximum number of characters printed of a text of others.
pub const MAX_CHARACTERS: usize = 500;

/// Standard output. File names and contents cannot control a terminal through it, and JSON stays as it is. Line ends
/// inside such a text are left to the caller to escape.
pub struct EscapedStdout(
    /// The stream itself, for what is written byte for byte: our own text, and that of others where no terminal shows it.
    pub StdoutLock<'static>,
);

impl Write for EscapedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(escaped_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Prints one line on standard error.
pub fn eprint_line(words: impl Display) {
    eprintln!("rsnotify: {}", escaped(&words.to_string()));
}

/// Writes to standard output. Returns the exit code of a command that has nothing else to do.
pub fn print(write: impl FnOnce(&mut EscapedStdout) -> io::Result<()>) -> anyhow::Result<Exit> {
    let mut out = EscapedStdout(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Exit::Fine),
    }
}

/// Returns a text of others escaped, in one line that is not too long.
pub fn escaped_excerpt(text: impl Display) -> String {
    excerpt(&escaped(&text.to_string()), MAX_CHARACTERS)
}

/// Returns lines in columns, below a header; `numbers` are the right-aligned columns.
pub fn in_columns<const N: usize>(
    header: [&str; N],
    lines: impl Iterator<Item = [String; N]>,
    numbers: &[usize],
) -> Vec<String> {
    let header = header.map(str::to_owned);
    let lines: Vec<[String; N]> = std::iter::once(header).chain(lines).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let lengths = lines.iter().map(|line| line[column].chars().count());
        lengths.max().unwrap_or_default()
    });
    let cell = |(column, cell): (usize, &String)| {
        let width = widths[column];
        if numbers.contains(&column) {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        }
    };
    let lines = lines.iter().map(|line| line.iter().enumerate().map(cell));
    lines
        .map(|cells| cells.collect::<Vec<_>>().join("  "))
        .collect()
}
