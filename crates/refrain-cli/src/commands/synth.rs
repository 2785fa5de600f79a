//! `refrain synth`: random checkpoints of real shapes.

use std::path::PathBuf;

use clap::Args;

use crate::{Global, model, output};

const EXAMPLES: &str = "Examples:
  refrain synth qwen3-0.6b:q4_0 random.gguf";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// ARCH:FORMAT, such as qwen3-0.6b:q4_0
    spec: String,
    /// Where to write it: a directory, or a .gguf file for GGUF formats
    out: PathBuf,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    model::open(&format!("synthetic:{}", arguments.spec))?;
    if !global.quiet {
        output::complain(&format!("wrote {}", arguments.out.display()));
    }
    Ok(())
}
