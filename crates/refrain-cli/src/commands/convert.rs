//! `refrain convert`: converts or quantises a checkpoint to another format.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use refrain_formats::Error;
use refrain_write::convert::{self, ConvertedTensor, Deviation, QuantMix, Recipe, Report};
use serde_json::{Value, json};

use crate::output::{self, human_bytes};
use crate::{Global, interrupt, load, model};

/// The list of formats, and the examples.
fn help() -> String {
    let (mlx, gguf): (Vec<_>, Vec<_>) = Recipe::all()
        .filter(|recipe| *recipe != Recipe::F16)
        .partition(|recipe| matches!(recipe, Recipe::Mlx(_)));
    let default = QuantMix::DEFAULT.name();
    format!(
        "Formats, from most to fewest bits per weight:\n{}{}{}  DeepSeek models cannot be written as GGUF files\n\n\
         Examples:\n  \
         refrain convert demo demo-{default}.gguf --format {default}\n  \
         refrain convert Qwen3-0.6B Qwen3-0.6B-mlx4 --format mlx4\n  \
         refrain convert model.gguf model-f16 --format f16 --json",
        format_lines(
            &[Recipe::F16],
            &["half precision: GGUF if the name ends in .gguf, else a directory"]
        ),
        format_lines(
            &gguf,
            &["a GGUF file; _m formats use more bits for the most sensitive tensors"]
        ),
        format_lines(
            &mlx,
            &[
                "a directory in MLX format with group size 64; add -g32 or -g128",
                "for other group sizes, as in mlx4-g32"
            ]
        ),
    )
}

/// Formats names in a narrow column, with their meaning beside them.
fn format_lines(recipes: &[Recipe], meaning: &[&str]) -> String {
    const WIDTH: usize = 27;
    let mut lines = vec![String::new()];
    for name in recipes.iter().map(Recipe::to_string) {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = name,
            Some(line) if line.len() + 1 + name.len() <= WIDTH => *line += &format!(" {name}"),
            _ => lines.push(name),
        }
    }
    let beside = meaning.iter().copied().chain(std::iter::repeat(""));
    let line = |(names, meaning): (&String, &str)| format!("  {}\n", format!("{names:28} {meaning}").trim_end());
    lines.iter().zip(beside).map(line).collect()
}

#[derive(Debug, Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// The model to convert
    source: String,
    /// Output path: a .gguf file or a directory, depending on the format
    destination: PathBuf,
    /// Output format; see the list below
    #[arg(long, value_name = "FORMAT", ignore_case = true, hide_possible_values = true, value_parser = recipes())]
    format: Recipe,
    /// Overwrite an existing checkpoint
    #[arg(long)]
    force: bool,
    /// Print the report as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Parses a recipe's name. MLX recipes with unusual group sizes are accepted but not listed.
fn recipes() -> impl TypedValueParser<Value = Recipe> {
    let listed = Recipe::all().map(|recipe| PossibleValue::new(recipe.to_string()));
    let grouped = Recipe::grouped().map(|name| PossibleValue::new(name).hide(true));
    let names = PossibleValuesParser::new(listed.chain(grouped));
    names.try_map(|name| Recipe::by_name(&name).ok_or("unknown format"))
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let source = model::open(&arguments.source)?;
    check_parent(&arguments.destination)?;
    let bar = load::progress_bar(global, "converting");
    let deferred = interrupt::defer()?;
    let progress = |progress| load::show_write_progress(&bar, progress);
    let options = convert::ConvertOptions {
        recipe: arguments.format,
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
    let report = report.map_err(|error| match &error {
        Error::Exists { path } => anyhow!(
            "cannot write {}: it already exists; overwrite it with --force, or choose another name",
            path.display()
        ),
        _ => error.into(),
    })?;
    if !global.quiet {
        for note in &report.notes {
            output::eprint_line(&format!("note: {note}"));
        }
    }
    if arguments.json {
        output::print_json(&as_json(&report, arguments))?;
    } else if !global.quiet {
        output::print(&as_text(&report, arguments))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails where the destination's folder does not exist.
fn check_parent(destination: &Path) -> anyhow::Result<()> {
    match destination.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            anyhow::bail!(
                "cannot write {}: the folder {} does not exist",
                destination.display(),
                folder.display()
            )
        }
        _ => Ok(()),
    }
}

/// The name for a model that has none: the last part of its path.
fn name(source: &str) -> &str {
    let last = source.trim_end_matches('/').rsplit('/').next().unwrap_or(source);
    last.strip_suffix(".gguf").unwrap_or(last)
}

fn total(report: &Report) -> (u64, Deviation) {
    let bytes = report.tensors.iter().map(|tensor| tensor.bytes).sum();
    let deviations = report.tensors.iter().map(|tensor| tensor.deviation);
    (bytes, deviations.fold(Deviation::default(), Deviation::merge))
}

fn as_text(report: &Report, arguments: &Arguments) -> String {
    let width = report.tensors.iter().map(|tensor| tensor.name.len()).max().unwrap_or(0);
    let line = |tensor: &ConvertedTensor| {
        format!(
            "{:width$}  {:>12} -> {:<12} {:>10}  relative RMS error {:.2e}, max {:.2e}\n",
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
        "wrote {}: {} tensors, {} of weights, relative RMS error {:.2e}, max {:.2e}\n",
        arguments.destination.display(),
        report.tensors.len(),
        human_bytes(bytes),
        deviation.relative_rms(),
        deviation.largest(),
    );
    text
}

fn as_json(report: &Report, arguments: &Arguments) -> Value {
    let tensor = |tensor: &ConvertedTensor| {
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
        "format": arguments.format.to_string(),
        "bytes": bytes,
        "relative_rms_error": deviation.relative_rms(),
        "largest_error": deviation.largest(),
        "notes": report.notes,
        "tensors": report.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}
