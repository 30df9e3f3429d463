//! `schema`: the JSON Schema of the configuration file, for editors.

use std::io::Write;

use crate::cli::exit::Exit;
use crate::cli::output::print;
use crate::config::schema;

pub fn schema() -> anyhow::Result<Exit> {
    let schema = schema::schema();
    print(|out| writeln!(out, "{schema:#}"))?;
    Ok(Exit::Fine)
}
