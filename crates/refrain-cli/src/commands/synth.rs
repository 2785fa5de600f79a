//! `refrain synth`: writes checkpoints with random weights in the shape of real models.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use refrain_write::synthetic;

use crate::{Global, interrupt, load, output};

/// The lists of architectures and formats, and the examples.
fn help() -> String {
    format!(
        "Architectures: {}\nFormats: {}; MLX formats also with group size -g32, -g64 or -g128\nDeepSeek \
         architectures cannot be written as GGUF files\n\n{EXAMPLES}",
        refrain_models::architectures().join(", "),
        refrain_formats::synthetic::formats().join(", ")
    )
}

const EXAMPLES: &str = "Examples:
  refrain synth qwen3-0.6b:q4_0 random.gguf
  refrain synth llama-3.2-1b:f16 random-directory
  refrain synth qwen3-8b:q6_k random.gguf
  refrain synth tiny:mlx4-g32 random-directory";

#[derive(Debug, Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// ARCH:FORMAT, such as qwen3-8b:q4_k_m; see the lists below
    spec: String,
    /// Output path: a directory for f32, f16, bf16 and MLX formats, a .gguf file for all others
    out: PathBuf,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let bar = load::progress_bar(global, "writing");
    let deferred = interrupt::defer()?;
    let progress = |progress| load::show_write_progress(&bar, progress);
    let written = synthetic::write(&arguments.spec, &arguments.out, &progress);
    bar.finish_and_clear();
    if interrupt::requested() {
        return Ok(interrupt::EXIT_CODE.into());
    }
    drop(deferred);
    written?;
    if !global.quiet {
        output::eprint_line(&format!("wrote {}", arguments.out.display()));
    }
    Ok(ExitCode::SUCCESS)
}
