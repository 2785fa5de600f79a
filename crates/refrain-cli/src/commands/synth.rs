//! `refrain synth`: random checkpoints of real shapes.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use refrain_formats::synthetic::{self, Progress};

use crate::{Global, interrupt, load, output};

const EXAMPLES: &str = "Examples:
  refrain synth qwen3-0.6b:q4_0 random.gguf
  refrain synth llama-3.2-1b:f16 random-directory";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// ARCH:FORMAT: qwen3-0.6b, qwen3-8b, llama-3.2-1b or tiny; f16, q8_0, q4_0 or mlx4
    spec: String,
    /// What to write: a directory for f16 and mlx4, a .gguf file for q8_0 and q4_0
    out: PathBuf,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let bar = load::progress_bar(global, "writing");
    let deferred = interrupt::defer()?;
    let progress = |progress: Progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        match interrupt::requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
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
