//! `completions`: what shells complete, made from the command line as it is.

use clap::{Args, CommandFactory, ValueEnum};

use crate::cli::options::{Exit, Options};
use crate::cli::output::print;

#[derive(Debug, Clone, Args)]
pub struct CompletionsOptions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// The shells whose completions we package.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub fn completions(options: &CompletionsOptions) -> anyhow::Result<Exit> {
    let generator = match options.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Options::command(), "rsnotify", &mut script);
    print(|out| out.exact(&script))?;
    Ok(Exit::Fine)
}
