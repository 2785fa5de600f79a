//! `refrain bench`: how fast a model loads, reads a prompt and writes.

mod measure;
mod report;
mod row;

use std::path::PathBuf;

use clap::Args;
use refrain::speed;
use refrain_formats::{TensorInfo, WholeFile};
use serde_json::json;

use crate::decoding::DecodingArguments;
use crate::load::{self, Loaded};
use crate::{Global, Usage, device, model, output};
use measure::{Test, TestKind};
use row::BenchRow;

const EXAMPLES: &str = "Examples:
  refrain bench demo
  refrain bench demo -p 32 -n 32 -d 0,100 --mode replay --json
  refrain bench synthetic:qwen3-8b:q4_0 -p 512 -n 128 --report card.json";

/// Measure how fast a model reads prompts and writes
///
/// Measures prompts (rows `pp`) and decoding (rows `tg`): tokens per second by wall clock, from the
/// first to the last token that the host receives, sampling included, and what it costs the host and
/// the device. -p, -n, -d and -b take lists; each prompt length and each number of generated tokens is
/// measured at each depth and batch. Every test begins with an unmeasured run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The models; they need no tokenizer
    #[arg(required = true)]
    models: Vec<String>,
    /// Tokens of the prompt; 0: no such test
    #[arg(short = 'p', long, default_value = "512", value_delimiter = ',', value_name = "N")]
    prompt: Vec<u32>,
    /// Tokens to generate, at least 2; 0: no such test
    #[arg(short = 'n', long, default_value = "128", value_delimiter = ',', value_name = "N")]
    generate: Vec<u32>,
    /// Tokens that the context holds before
    #[arg(short = 'd', long, default_value = "0", value_delimiter = ',', value_name = "N")]
    depth: Vec<u32>,
    /// Equal sequences that are decoded together
    #[arg(short = 'b', long, default_value = "1", value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: Vec<u32>,
    /// Repetitions of each test
    #[arg(short = 'r', long, default_value_t = 3, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Write a JSON array, an object for each row
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Write comma-separated values
    #[arg(long)]
    csv: bool,
    /// Write everything known of the device and all rows to a JSON file, to be shown to others
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    decoding: DecodingArguments,
}

impl Arguments {
    /// The tests that are asked for, prompts first.
    fn tests(&self) -> Result<Vec<Test>, Usage> {
        let mut tests = Vec::new();
        let kinds = [(TestKind::Prompt, &self.prompt), (TestKind::Generate, &self.generate)];
        for (kind, lengths) in kinds {
            for &tokens in lengths.iter().filter(|&&tokens| tokens > 0) {
                if kind == TestKind::Generate && tokens < 2 {
                    let why = "-n 1 has no time between tokens to measure; the least is 2";
                    return Err(Usage(why.to_owned()));
                }
                for &depth in &self.depth {
                    for &batch in &self.batch {
                        tests.push(Test {
                            kind,
                            tokens: tokens as usize,
                            depth: depth as usize,
                            batch: batch as usize,
                        });
                    }
                }
            }
        }
        if tests.is_empty() {
            Err(Usage("nothing to measure: -p and -n are both 0".to_owned()))
        } else {
            Ok(tests)
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let tests = arguments.tests()?;
    if let Some(path) = &arguments.report {
        WholeFile::try_create(path)?;
    }
    let device = device::open_timed(global)?;
    let mut rows = Vec::new();
    let mut loads = Vec::new();
    for name in &arguments.models {
        let checkpoint = model::open(name)?;
        let context = tests.iter().map(Test::context).max().unwrap_or(1);
        let limit = checkpoint.config().max_position;
        if context > limit {
            let why = format!("the tests need a context of {context} tokens, but that of {name} has {limit}");
            return Err(Usage(why).into());
        }
        let loaded = load::load(global, &checkpoint, &device, context)?;
        loads.push(load_figures(name, &loaded));
        // Its memory goes before the probe takes some.
        let measured = measure::all(&loaded, &tests, arguments)?;
        rows.extend(measured.into_iter().map(|figures| BenchRow {
            model: name.clone(),
            arch: checkpoint.config().family.name.to_owned(),
            format: checkpoint.weight_format(),
            layers: checkpoint.config().layers,
            parameters: checkpoint.tensors().map(TensorInfo::values).sum(),
            bytes: loaded.model.weight_bytes(),
            figures,
        }));
    }
    let bandwidth = speed::read_bandwidth(&device)?;
    let rows = report::rows(&rows, &device, bandwidth);
    let report = report::whole(&device, bandwidth, &loads, &rows);
    match (arguments.json, arguments.csv) {
        (true, _) => output::print_json(&rows.into())?,
        (_, true) => output::print(&report::csv(&rows))?,
        _ => {
            output::print(&report::table(&rows))?;
            if !global.quiet {
                output::complain(&report::line(&device, bandwidth, &loads));
            }
        }
    }
    device::report(global, &device);
    // Last: whatever happens to the file, the figures have been shown.
    if let Some(path) = &arguments.report {
        WholeFile::write(path, format!("{report:#}\n").as_bytes())?;
    }
    Ok(())
}

fn load_figures(name: &str, loaded: &Loaded) -> serde_json::Value {
    json!({
        "model": name,
        "weight_bytes": loaded.model.weight_bytes(),
        "seconds": loaded.time.as_secs_f64(),
        "gb_per_s": loaded.bytes_per_second() / 1e9,
    })
}
