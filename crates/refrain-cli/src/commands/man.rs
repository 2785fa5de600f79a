//! `refrain man`: writes manual pages.

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
/// Writes the program's manual page to standard output, or the pages of all commands to a directory; show one with `man
/// ./pages/refrain-run.1`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Directory for the pages; created if missing
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
