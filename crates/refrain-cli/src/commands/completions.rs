//! `refrain completions`: writes shell completion scripts.

use clap::Args;
use clap_complete::Shell;

use crate::output;

const EXAMPLES: &str = "Examples:
  refrain completions bash > refrain.bash
  refrain completions zsh > _refrain";

/// Generate shell completions
///
/// Writes a completion script to standard output. For bash, save it as
/// ~/.local/share/bash-completion/completions/refrain; for zsh, as _refrain in a directory of $fpath; for fish, as
/// ~/.config/fish/completions/refrain.fish.
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
