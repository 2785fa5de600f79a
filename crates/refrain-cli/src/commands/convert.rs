//! `refrain convert`: a checkpoint in another format.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use refrain_formats::convert::{self, Converted, Deviation, Recipe, Report};
use serde_json::{Value, json};

use crate::output::{self, human_bytes};
use crate::{Global, interrupt, load, model};

const EXAMPLES: &str = "Examples:
  refrain convert demo demo-q4_k_m.gguf --format q4_k_m
  refrain convert Qwen3-0.6B Qwen3-0.6B-mlx4 --format mlx4
  refrain convert model.gguf model-f16 --format f16 --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The checkpoint to convert: any MODEL but Qwen3.5-MoE's
    source: String,
    /// What to write: a .gguf file for q8_0, q4_0 and q4_k_m, a directory for mlx4 and mlx8, either for f16
    destination: PathBuf,
    /// What the weights become
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Format,
    /// Replace a checkpoint that is there already
    #[arg(long)]
    force: bool,
    /// Write the report as one line of JSON
    #[arg(long)]
    json: bool,
}

/// The recipes, as the command line names them.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Half precision
    #[value(name = "f16")]
    F16,
    /// GGUF, 8 bits
    #[value(name = "q8_0")]
    Q8,
    /// GGUF, 4 bits
    #[value(name = "q4_0")]
    Q4,
    /// GGUF, 4 bits with 6 where it matters most
    #[value(name = "q4_k_m")]
    Q4KM,
    /// MLX, 4 bits in groups of 64
    #[value(name = "mlx4")]
    Mlx4,
    /// MLX, 8 bits in groups of 64
    #[value(name = "mlx8")]
    Mlx8,
}

impl Format {
    fn recipe(self) -> Recipe {
        match self {
            Format::F16 => Recipe::F16,
            Format::Q8 => Recipe::Q8_0,
            Format::Q4 => Recipe::Q4_0,
            Format::Q4KM => Recipe::Q4KM,
            Format::Mlx4 => Recipe::Mlx4,
            Format::Mlx8 => Recipe::Mlx8,
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let source = model::open(&arguments.source)?;
    let bar = load::progress_bar(global, "converting");
    let deferred = interrupt::defer()?;
    let progress = |progress| load::written(&bar, progress);
    let options = convert::Options {
        recipe: arguments.format.recipe(),
        name: name(&arguments.source),
        replace: arguments.force,
        progress: &progress,
    };
    let report = convert::convert(&source, &arguments.destination, &options);
    bar.finish_and_clear();
    if interrupt::requested() {
        return Ok(interrupt::EXIT_CODE.into());
    }
    drop(deferred);
    let report = report?;
    if !global.quiet {
        for note in &report.notes {
            output::complain(&format!("note: {note}"));
        }
    }
    match arguments.json {
        true => output::print_json(&as_json(&report, arguments))?,
        false => output::print(&as_text(&report, arguments))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a model is called that has no name of its own: the last part of its path.
fn name(source: &str) -> &str {
    let last = source.trim_end_matches('/').rsplit('/').next().unwrap_or(source);
    last.strip_suffix(".gguf").unwrap_or(last)
}

fn total(report: &Report) -> (u64, Deviation) {
    let bytes = report.tensors.iter().map(|tensor| tensor.bytes).sum();
    let deviations = report.tensors.iter().map(|tensor| tensor.deviation);
    (bytes, deviations.fold(Deviation::default(), Deviation::and))
}

fn as_text(report: &Report, arguments: &Arguments) -> String {
    let width = report.tensors.iter().map(|tensor| tensor.name.len()).max().unwrap_or(0);
    let line = |tensor: &Converted| {
        format!(
            "{:width$}  {:>12} -> {:<12} {:>10}  relative RMS error {:.2e}, largest {:.2e}\n",
            tensor.name,
            tensor.from.to_string(),
            tensor.to.to_string(),
            human_bytes(tensor.bytes),
            tensor.deviation.relative_rms(),
            tensor.deviation.largest(),
        )
    };
    let (bytes, deviation) = total(report);
    let mut text: String = report.tensors.iter().map(line).collect();
    text += &format!(
        "wrote {}: {} tensors, {} of weights, relative RMS error {:.2e}, largest {:.2e}\n",
        arguments.destination.display(),
        report.tensors.len(),
        human_bytes(bytes),
        deviation.relative_rms(),
        deviation.largest(),
    );
    text
}

fn as_json(report: &Report, arguments: &Arguments) -> Value {
    let tensor = |tensor: &Converted| {
        json!({
            "name": tensor.name,
            "shape": tensor.shape,
            "from": tensor.from.to_string(),
            "to": tensor.to.to_string(),
            "bytes": tensor.bytes,
            "relative_rms_error": tensor.deviation.relative_rms(),
            "largest_error": tensor.deviation.largest(),
        })
    };
    let (bytes, deviation) = total(report);
    json!({
        "written": arguments.destination.display().to_string(),
        "format": arguments.format.recipe().name(),
        "bytes": bytes,
        "relative_rms_error": deviation.relative_rms(),
        "largest_error": deviation.largest(),
        "notes": report.notes,
        "tensors": report.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}
