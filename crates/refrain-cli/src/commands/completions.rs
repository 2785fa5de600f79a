//! `refrain completions`: what a shell needs to complete command lines.

use clap::Args;
use clap_complete::Shell;

use crate::output;

const EXAMPLES: &str = "Examples:
  refrain completions bash > refrain.bash
  refrain completions zsh > _refrain";

/// Write what a shell needs to complete command lines
///
/// Writes the script to the standard output. For bash, put it in
/// ~/.local/share/bash-completion/completions/refrain; for zsh, as _refrain in a folder of $fpath; for
/// fish, in ~/.config/fish/completions/refrain.fish.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::command(), "refrain", &mut script);
    output::print_text(&String::from_utf8(script)?)
}
