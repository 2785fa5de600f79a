//! `refrain logits`: computes the logits of every position of given token sequences.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use refrain_engine::{CacheTypes, Engine, EngineOptions};
use refrain_formats::AtomicFile;
use refrain_models::ModelConfig;
use serde_json::{Value, json};

use crate::{Global, device, input, interrupt, load, model};

const EXAMPLES: &str = "Examples:
  refrain logits Qwen3-0.6B --tokens tokens.json --out logits.safetensors --device cpu";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model; no tokenizer is needed
    model: String,
    /// Input JSON file {"input_ids": [[...], ...]} with B sequences of T token ids
    #[arg(long, value_name = "FILE.json")]
    tokens: PathBuf,
    /// Output file: an f32 tensor `logits` of shape [B, T, vocabulary]
    #[arg(long, value_name = "FILE.safetensors")]
    out: PathBuf,
    /// Maximum number of tokens to process together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let checkpoint = model::open(&arguments.model)?;
    let config = checkpoint.config();
    let label = arguments.tokens.display().to_string();
    let rows = read_rows(&input::read_text(&arguments.tokens)?, config).map_err(|error| anyhow!("{label}: {error}"))?;
    let length = rows[0].len();
    AtomicFile::try_create(&arguments.out)?;
    let device = device::open(global)?;
    let loaded = load::load(global, &checkpoint, &device, CacheTypes::of_device(&device), length)?;
    let options = EngineOptions {
        max_chunk: arguments.chunk.map(|tokens| tokens as usize),
        prepares: false,
        ..EngineOptions::single(length)
    };
    let engine = Engine::start(&loaded.model, &options)?;
    let deferred = interrupt::defer()?;
    let mut out = create(&arguments.out, [rows.len(), length, config.vocab_size])?;
    for row in &rows {
        out.append(bytemuck::cast_slice(&engine.logits(row, 0)?))?;
        if interrupt::requested() {
            return Ok(interrupt::EXIT_CODE.into());
        }
    }
    out.finish()?;
    drop(deferred);
    device::report(global, &device);
    Ok(ExitCode::SUCCESS)
}

/// Parses and validates the rows of token ids: at least one, all of one length, all in the vocabulary.
fn read_rows(text: &str, config: &ModelConfig) -> anyhow::Result<Vec<Vec<u32>>> {
    let value: Value = serde_json::from_str(text).map_err(|error| anyhow!("invalid JSON: {error}"))?;
    let rows = value.get("input_ids").and_then(Value::as_array);
    let rows = rows.ok_or_else(|| anyhow!("no list \"input_ids\""))?;
    let rows = rows
        .iter()
        .enumerate()
        .map(|(index, row)| read_row(index, row, config.vocab_size))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let Some(first) = rows.first().map(Vec::len).filter(|length| *length > 0) else {
        bail!("no token ids");
    };
    if let Some(index) = rows.iter().position(|row| row.len() != first) {
        let length = rows[index].len();
        bail!("row 0 has {first} token ids and row {index} has {length}; all rows must have the same length");
    }
    if first > config.max_position {
        let limit = config.max_position;
        bail!("rows of {first} token ids exceed the model's context length of {limit}");
    }
    Ok(rows)
}

fn read_row(index: usize, row: &Value, vocabulary: usize) -> anyhow::Result<Vec<u32>> {
    let row = row
        .as_array()
        .ok_or_else(|| anyhow!("row {index} is not a list of token ids"))?;
    let id = |(position, value): (usize, &Value)| {
        let id = value.as_u64().filter(|id| *id < vocabulary as u64);
        id.map(|id| id as u32).ok_or_else(|| {
            let last = vocabulary - 1;
            anyhow!(
                "row {index}, position {position}: {value} is not a token id of this model, whose \
                 vocabulary has {vocabulary} tokens (0 to {last})"
            )
        })
    };
    row.iter().enumerate().map(id).collect()
}

/// Starts a safetensors file with one f32 tensor. Its values are appended as they are computed, because they may exceed
/// memory.
fn create(path: &Path, shape: [usize; 3]) -> Result<AtomicFile, refrain_formats::Error> {
    let bytes = shape.iter().product::<usize>() * size_of::<f32>();
    let tensor = json!({ "dtype": "F32", "shape": shape, "data_offsets": [0, bytes] });
    let mut header = json!({ "logits": tensor }).to_string();
    // Values are aligned to 8 bytes.
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let mut file = AtomicFile::create(path)?;
    file.append(&(header.len() as u64).to_le_bytes())?;
    file.append(header.as_bytes())?;
    Ok(file)
}
