//! Errors of a configuration, with their locations.

use std::fmt;
use std::path::PathBuf;

/// The error of loading a [`Config`](crate::config::Config).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "nothing to watch: name a configuration file with --config FILE, or a tree with --root DIR --url URI \
         ({default} does not exist)"
    )]
    Nothing { default: PathBuf },
    #[error(
        "{path} is a configuration of a hub for many Sources ([hub], [[publisher]]): start it with `rsnotify hub --config \
         {path}`; this command needs a file with [[source]]"
    )]
    OfHub { path: PathBuf },
    #[error(
        "{path} is a configuration of `rsnotify run`: a hub for many Sources needs a file with [hub] and [[publisher]]"
    )]
    OfRun { path: PathBuf },
    #[error(
        "{path} has both [[source]] and [[publisher]]: `rsnotify run` and `rsnotify hub` are two daemons, each with a file \
         and a state_dir of its own"
    )]
    OfBoth { path: PathBuf },
    /// Everything that was found wrong, in the order of the file.
    #[error("{}", lines(problems))]
    Invalid { problems: Vec<Problem> },
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// One thing to correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub location: Location,
    /// The key with the tables around it, such as `window.quiet`; empty where it is not about one key.
    pub key: String,
    pub message: String,
    /// The word that a misspelt one probably stands for.
    pub suggestion: Option<String>,
}

/// The location of a value. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A flag, or the environment variable of the same name.
    Flag(&'static str),
    File {
        path: PathBuf,
        line: usize,
        column: usize,
    },
    /// A default, or something that is absent.
    Nowhere,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Flag(flag) => write!(f, "{flag}: ")?,
            Location::File { path, line, column } => {
                write!(f, "{}:{line}:{column}: ", path.display())?;
                if !self.key.is_empty() {
                    write!(f, "{}: ", self.key)?;
                }
            }
            Location::Nowhere if self.key.is_empty() => {}
            Location::Nowhere => write!(f, "{}: ", self.key)?,
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean \"{suggestion}\"?"),
            None => Ok(()),
        }
    }
}
