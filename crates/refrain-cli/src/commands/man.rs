//! `refrain man`: manual pages.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use clap_mangen::Man;

use crate::output;

const EXAMPLES: &str = "Examples:
  refrain man > refrain.1
  refrain man pages";

/// Write manual pages
///
/// Writes the program's manual page to the standard output, or those of all commands to a folder:
/// `man ./pages/refrain-run.1` shows one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder; it is made if it is not there
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let command = crate::command();
    let Some(folder) = &arguments.folder else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        return output::print_text(&String::from_utf8(page)?);
    };
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| anyhow!("cannot write to {}: {error}", folder.display()))
}
