//! `refrain synth`: random checkpoints of real shapes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use refrain_write::synthetic;

use crate::{Global, interrupt, load, output};

/// What there is, and how to ask for it.
fn help() -> String {
    format!(
        "Architectures: {}\nFormats: {}; those of MLX also with -g32, -g64 or -g128; of tiny-hybrid \
         and qwen3.5-35b-a3b no GGUF file can be written\n\n{EXAMPLES}",
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
    /// ARCH:FORMAT, such as qwen3-8b:q4_k_m; both are listed below
    spec: String,
    /// What to write: a directory for f32, f16, bf16 and mlx formats, a .gguf file for the rest
    out: PathBuf,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let bar = load::progress_bar(global, "writing");
    let deferred = interrupt::defer()?;
    let progress = |progress| load::written(&bar, progress);
    let written = synthetic::write(&arguments.spec, &arguments.out, &progress);
    bar.finish_and_clear();
    if interrupt::requested() {
        return Ok(interrupt::EXIT_CODE.into());
    }
    drop(deferred);
    written?;
    if !global.quiet {
        output::complain(&format!("wrote {}", arguments.out.display()));
    }
    Ok(ExitCode::SUCCESS)
}
