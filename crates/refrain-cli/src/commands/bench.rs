//! `refrain bench`: measures how fast a model loads, processes prompts and generates.

mod measure;
mod modes;
mod report;
mod requests;
mod row;

use std::path::PathBuf;

use clap::Args;
use refrain::speed;
use refrain_engine::Speculation;
use refrain_formats::{AtomicFile, TensorInfo};
use serde_json::json;

use crate::cache_args::CacheArguments;
use crate::decoding::DecodingArguments;
use crate::load::{self, Loaded};
use crate::{Global, Usage, device, model, output};
use measure::{Test, TestKind};
use row::BenchRow;

const EXAMPLES: &str = "Examples:
  refrain bench demo
  refrain bench demo -p 32 -n 32 -d 0,100 --mode replay --json
  refrain bench synthetic:qwen3-8b:q4_0 -p 512 -n 128 --report card.json";

/// Measure prompt processing and text generation speed
///
/// Measures prompt processing (`pp`) and text generation (`tg`) as llama-bench does: tokens per second of wall-clock
/// time, sampling included, and the cost on host and device. -p, -n, -d and -b take comma-separated lists; every prompt
/// length and every number of generated tokens is measured at every depth and batch size. Each test starts with an
/// unmeasured warm-up run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The models; no tokenizer is needed
    #[arg(required = true)]
    models: Vec<String>,
    /// Prompt lengths in tokens (pp); 0 skips the test
    #[arg(short = 'p', long, default_value = "512", value_delimiter = ',', value_name = "N")]
    prompt: Vec<u32>,
    /// Numbers of tokens to generate (tg), at least 2; 0 skips the test
    #[arg(short = 'n', long, default_value = "128", value_delimiter = ',', value_name = "N")]
    generate: Vec<u32>,
    /// Context depths: tokens already in the KV cache
    #[arg(short = 'd', long, default_value = "0", value_delimiter = ',', value_name = "N")]
    depth: Vec<u32>,
    /// Batch sizes: requests with texts of their own, at once, computed as `serve` does
    #[arg(short = 'b', long, default_value = "1", value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    batch: Vec<u32>,
    /// Generate as `serve` does, with drafts of the next tokens: each token is accepted with this probability if those
    /// before it were. The texts mean nothing. If the checkpoint has a multi-token prediction head, the time that it takes
    /// to draft counts. `off` generates without drafts
    #[arg(long, value_delimiter = ',', value_name = "P", value_parser = acceptance)]
    accept: Vec<Speculation>,
    /// Repetitions of each test
    #[arg(short = 'r', long, default_value_t = 3, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Print a JSON array with an object per row
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
    /// Write device details and all rows to a JSON file, for sharing
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    decoding: DecodingArguments,
}

impl Arguments {
    /// What the tests need of the checkpoint.
    fn speculation(&self) -> Speculation {
        let drafts = self.accept.iter().find(|speculation| **speculation != Speculation::Off);
        drafts.copied().unwrap_or_default()
    }

    /// The requested tests, prompt processing first.
    fn tests(&self) -> Result<Vec<Test>, Usage> {
        let mut tests = Vec::new();
        let kinds = [(TestKind::Prompt, &self.prompt), (TestKind::Generate, &self.generate)];
        for (kind, lengths) in kinds {
            for &tokens in lengths.iter().filter(|&&tokens| tokens > 0) {
                if kind == TestKind::Generate && tokens < 2 {
                    let why = "-n 1 has no interval between tokens to measure; use 2 or more";
                    return Err(Usage(why.to_owned()));
                }
                let speculations: Vec<Option<Speculation>> = match kind {
                    TestKind::Generate if !self.accept.is_empty() => self.accept.iter().copied().map(Some).collect(),
                    TestKind::Generate | TestKind::Prompt => vec![None],
                };
                for &depth in &self.depth {
                    for &batch in &self.batch {
                        tests.extend(speculations.iter().map(|&speculation| Test {
                            kind,
                            tokens: tokens as usize,
                            depth: depth as usize,
                            batch: batch as usize,
                            speculation,
                        }));
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

/// Parses a value of `--accept`.
fn acceptance(text: &str) -> Result<Speculation, String> {
    if text == "off" {
        return Ok(Speculation::Off);
    }
    let share: Option<f64> = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    let share = share.ok_or("must be a number from 0 to 1, or off")?;
    Ok(Speculation::Synthetic {
        percent: (100.0 * share).round() as u8,
    })
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let tests = arguments.tests()?;
    if let Some(path) = &arguments.report {
        AtomicFile::try_create(path)?;
    }
    let device = device::open_timed(global)?;
    let mut rows = Vec::new();
    let mut loads = Vec::new();
    for name in &arguments.models {
        let checkpoint = model::open(name)?;
        let context = tests.iter().map(Test::context).max().unwrap_or(1);
        let limit = checkpoint.config().max_position;
        if context > limit {
            let why = format!("the tests need a context of {context} tokens, but the limit of {name} is {limit}");
            return Err(Usage(why).into());
        }
        let cache = arguments.cache.types(&device);
        let loaded = load::load_speculating(global, &checkpoint, &device, cache, context, arguments.speculation())?;
        loads.push(load_json(name, &loaded));
        // The engines are dropped before the bandwidth probe allocates memory.
        let measured = measure::measure_all(&loaded, &tests, arguments)?;
        rows.extend(measured.into_iter().map(|measurement| {
            BenchRow {
                model: name.clone(),
                arch: checkpoint.config().family.name.to_owned(),
                format: checkpoint.weight_format(),
                layers: checkpoint.config().layers,
                parameters: checkpoint
                    .tensors()
                    .filter(|tensor| loaded.model.config().uses(&tensor.name))
                    .map(TensorInfo::values)
                    .sum(),
                bytes: loaded.model.weight_bytes(),
                measurement,
            }
        }));
    }
    let bandwidth = speed::read_bandwidth(&device)?;
    let rows = report::rows(&rows, &device, bandwidth);
    let report = report::report_file(&device, bandwidth, &loads, &rows);
    if arguments.json {
        output::print_json(&rows.into())?;
    } else if arguments.csv {
        output::print(&report::csv(&rows))?;
    } else {
        output::print(&report::table(&rows))?;
        if !global.quiet {
            output::eprint_line(&report::summary_line(&device, bandwidth, &loads));
        }
    }
    device::report(global, &device);
    // Last, so that the results are shown even if the file cannot be written.
    if let Some(path) = &arguments.report {
        AtomicFile::write(path, format!("{report:#}\n").as_bytes())?;
    }
    Ok(())
}

fn load_json(name: &str, loaded: &Loaded) -> serde_json::Value {
    json!({
        "model": name,
        "weight_bytes": loaded.model.weight_bytes(),
        "seconds": loaded.time.as_secs_f64(),
        "gb_per_s": loaded.bytes_per_second() / 1e9,
    })
}
