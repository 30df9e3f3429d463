//! `completions`: completions for shells, generated from the command line.

use clap::CommandFactory;

use crate::cli::exit::Exit;
use crate::cli::options::{CompletionsOptions, Options, Shell};
use crate::cli::output::print;

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
