//! `refrain bench`: how fast a model loads, reads a prompt and writes.

mod report;

use std::time::Instant;

use clap::Args;
use refrain_engine::{Model, Sampler, SamplerOptions, Session};
use refrain_vulkan::Counters;

use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::{Global, Usage, device, model, output, probe};

const EXAMPLES: &str = "Examples:
  refrain bench demo -p 64 -n 32
  refrain bench synthetic:qwen3-8b:q4_0 -p 512 -n 128 --json";

/// Measure loading, prompt and decode speed
///
/// Measures loading (bytes of weights per second), the prompt (tokens per second until its last
/// logits are on the host) and decoding (tokens per second from the first to the last token that
/// the host receives, sampling included). Each repetition begins with an empty context; one more,
/// unmeasured, comes before them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The model; it needs no tokenizer
    model: String,
    /// Tokens of the prompt; decoding goes on from there (1: decoding alone)
    #[arg(short = 'p', long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens to decode; at least 2
    #[arg(short = 'n', long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    generate: u32,
    /// Repetitions; the fastest counts
    #[arg(short = 'r', long, default_value_t = 3, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

/// What was measured.
struct Measurements<'a> {
    arguments: &'a Arguments,
    loaded: &'a Loaded,
    /// The repetitions, in order.
    repetitions: Vec<Repetition>,
    /// Bytes per second that a probe read from the device's memory.
    bandwidth: f64,
    /// Bytes of weights that each token reads.
    read_per_token: u64,
    memory: MemoryUse,
}

/// One repetition's times in seconds, and what the device did.
#[derive(Debug, Clone, Copy)]
struct Repetition {
    /// Until the logits after the prompt were on the host.
    prompt: f64,
    /// From the first to the last token.
    decode: f64,
    /// What happened between them.
    counters: Counters,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let checkpoint = model::open(&arguments.model)?;
    let config = checkpoint.config();
    let context = arguments.prompt as usize + arguments.generate as usize;
    if context > config.max_position {
        let limit = config.max_position;
        let why = format!("-p and -n make {context} tokens, but the model's context is {limit}");
        return Err(Usage(why).into());
    }
    let device = device::open(global)?;
    let loaded = load::load(global, &checkpoint, &device, context)?;
    let mut session = Session::new(&loaded.model, context)?;
    let prompt = prompt(arguments.prompt, config.vocab_size);
    // Pipelines are made and clocks rise here.
    repetition(&loaded.model, &mut session, &prompt, arguments.generate)?;
    let repetitions = (0..arguments.repetitions)
        .map(|_| repetition(&loaded.model, &mut session, &prompt, arguments.generate))
        .collect::<anyhow::Result<_>>()?;
    // Before the probe, which takes memory of its own.
    let memory = MemoryUse::of(&loaded.model, &session);
    let bandwidth = probe::read_bandwidth(&device)?;
    let measurements = Measurements {
        arguments,
        loaded: &loaded,
        repetitions,
        bandwidth,
        read_per_token: load::bytes_read_per_token(&checkpoint),
        memory,
    };
    match arguments.json {
        true => output::print_json(&report::json(&measurements))?,
        false => output::print(&report::text(&measurements))?,
    }
    device::report(global, &device);
    Ok(())
}

/// Tokens without meaning, spread over the vocabulary, the same each time.
fn prompt(tokens: u32, vocabulary: usize) -> Vec<u32> {
    let spread = |i: u32| (u64::from(i) * 0x9E37_79B9 % vocabulary as u64) as u32;
    (0..tokens).map(spread).collect()
}

fn repetition(model: &Model, session: &mut Session<'_>, prompt: &[u32], generate: u32) -> anyhow::Result<Repetition> {
    session.rewind(0);
    let settings = Sampler::new(SamplerOptions::default())?.settings();
    let start = Instant::now();
    let mut stream = session.stream(prompt, &settings)?;
    stream.next_tokens()?;
    let prompt_time = start.elapsed().as_secs_f64();
    let (first, before) = (Instant::now(), model.counters());
    for _ in 1..generate {
        stream.next_tokens()?;
    }
    let decode = first.elapsed().as_secs_f64();
    let counters = model.counters() - before;
    stream.end()?;
    Ok(Repetition {
        prompt: prompt_time,
        decode,
        counters,
    })
}
