//! `refrain soak`: a long-running decode test.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use refrain_engine::{
    CacheTypes, Engine, EngineOptions, EngineRequest, Error, GenerateOptions, Model, Sampler, SamplerOptions, Verified,
};
use serde_json::json;

use crate::decoding::DecodingArguments;
use crate::load;
use crate::output::{self, human_bytes, human_rate, human_seconds};
use crate::{Global, device, model};

const EXAMPLES: &str = "Examples:
  refrain soak demo -n 200
  refrain soak synthetic:qwen3-0.6b:q4_0 -n 300 --ctx 128 --json";

/// Run a long decoding test for rare faults
///
/// Decodes many tokens by replay, context after context, and checks for faults that only appear over time: samples of
/// steps that differ from eager execution, runs of the same sequence that differ, growing memory, and tokens that
/// exceed the timeout. Exits with 1 if it finds any. On the CPU executor, which has no replay, nothing is compared.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model; no tokenizer is needed
    model: String,
    /// Number of tokens to decode
    #[arg(short = 'n', long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Context length in tokens [default: 2048, or the model's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..))]
    ctx: Option<u32>,
    /// Number of tokens to compare with eager execution, spread over the run
    #[arg(long, default_value_t = 20, value_name = "N")]
    verify: u32,
    /// Fail if a token takes longer than this; `inf` disables the limit
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    timeout: f64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    decoding: DecodingArguments,
}

/// The token that each context begins with.
const FIRST_TOKEN: u32 = 1;
/// Contexts after which memory use must no longer grow.
const WARM_UP_CONTEXTS: u32 = 3;

/// Results of the run.
#[derive(Default)]
struct Verdict {
    decoded: u64,
    seconds: f64,
    verified: u32,
    contexts: u32,
    slowest: Duration,
    memory_before: u64,
    memory_after: u64,
    failures: Vec<String>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let checkpoint = model::open(&arguments.model)?;
    let limit = checkpoint.config().max_position;
    let context = arguments.ctx.map_or(2048, |context| context as usize).min(limit);
    let device = device::open(global)?;
    let loaded = load::load(global, &checkpoint, &device, CacheTypes::of_device(&device), context)?;
    let mut verdict = Verdict::default();
    let mut options = EngineOptions {
        prefix_cache: false,
        prepares: false,
        ..EngineOptions::single(context)
    };
    arguments.decoding.apply_to(&mut options, &loaded.model);
    let engine = Engine::start(&loaded.model, &options)?;
    let bar = load::count_bar(global, "decoding");
    let mut samples = 0;
    let mut first: Option<Vec<u32>> = None;
    while verdict.decoded < u64::from(arguments.tokens) && verdict.failures.is_empty() {
        let left = (u64::from(arguments.tokens) - verdict.decoded) as usize;
        let tokens = one_context(&engine, left, arguments, &mut verdict, &mut |done| {
            load::update_bar(&bar, done as usize, arguments.tokens as usize)
        })?;
        note_memory(&loaded.model, &mut verdict);
        let seen = first.get_or_insert_with(|| tokens.clone());
        // All contexts start equal and must continue equal.
        if tokens.iter().zip(seen.iter()).any(|(one, other)| one != other) {
            verdict
                .failures
                .push(format!("context {} differs from the first", verdict.contexts));
        }
        let due = (verdict.decoded * u64::from(arguments.verify)).div_ceil(u64::from(arguments.tokens)) as u32;
        if due > samples && !device.is_cpu() {
            let count = due - samples;
            samples = due;
            verify(&loaded.model, &tokens, count, context, &mut verdict)?;
        }
    }
    bar.finish_and_clear();
    if verdict.memory_after > verdict.memory_before {
        verdict.failures.push(format!(
            "memory grew from {} to {}",
            human_bytes(verdict.memory_before),
            human_bytes(verdict.memory_after)
        ));
    }
    print_verdict(arguments, device.name(), &verdict)?;
    device::report(global, &device);
    Ok(if verdict.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Decodes one context from its first token; returns that and the tokens.
fn one_context(
    engine: &Engine,
    max_tokens: usize,
    arguments: &Arguments,
    verdict: &mut Verdict,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<Vec<u32>> {
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: Sampler::new(SamplerOptions {
            temperature: 1.0,
            seed: 1,
            ..SamplerOptions::default()
        })?,
        ..GenerateOptions::default()
    };
    let start = Instant::now();
    let mut tokens = vec![FIRST_TOKEN];
    let mut last = Instant::now();
    for token in engine.generate(EngineRequest::new(tokens.clone(), options))? {
        let taken = last.elapsed();
        last = Instant::now();
        // The very first token waits for kernels to be compiled.
        if verdict.contexts > 0 || tokens.len() > 1 {
            verdict.slowest = verdict.slowest.max(taken);
        }
        if taken.as_secs_f64() > arguments.timeout {
            verdict
                .failures
                .push(format!("a token took {}", human_seconds(taken.as_secs_f64())));
        }
        match token {
            Ok(token) => tokens.push(token),
            Err(Error::NotANumber { .. }) => {
                verdict.failures.push("logits are NaN".to_owned());
                break;
            }
            Err(error) => return Err(error.into()),
        }
        verdict.decoded += 1;
        progress(verdict.decoded);
    }
    verdict.seconds += start.elapsed().as_secs_f64();
    verdict.contexts += 1;
    Ok(tokens)
}

/// Notes how much memory is in use after a context.
fn note_memory(model: &Model, verdict: &mut Verdict) {
    let allocated = model.counters().total_bytes();
    // The first comparison allocates memory that the runtime keeps for the next.
    if verdict.contexts <= WARM_UP_CONTEXTS {
        verdict.memory_before = allocated;
    }
    verdict.memory_after = allocated;
}

/// Compares the last tokens with eager execution, step by step.
fn verify(model: &Model, tokens: &[u32], count: u32, context: usize, verdict: &mut Verdict) -> anyhow::Result<()> {
    let count = (count as usize).min(tokens.len() - 1);
    let prompt = &tokens[..tokens.len() - count];
    let verified = Verified::new(model, context, None, None)?;
    let mut tokens = verified.tokens(prompt, &Sampler::new(SamplerOptions::default())?.settings())?;
    for _ in 0..count {
        match tokens.next_token() {
            Ok(Some(_)) => verdict.verified += 1,
            Ok(None) => break,
            Err(error) => {
                verdict.failures.push(error.to_string());
                break;
            }
        }
    }
    Ok(())
}

fn print_verdict(arguments: &Arguments, device: &str, verdict: &Verdict) -> anyhow::Result<()> {
    let rate = verdict.decoded as f64 / verdict.seconds;
    if arguments.json {
        return output::print_json(&json!({
            "model": arguments.model,
            "device": device,
            "verdict": if verdict.failures.is_empty() { "sound" } else { "failed" },
            "failures": verdict.failures,
            "tokens": verdict.decoded,
            "seconds": verdict.seconds,
            "tokens_per_s": rate,
            "contexts": verdict.contexts,
            "verified_tokens": verdict.verified,
            "slowest_token_ms": verdict.slowest.as_secs_f64() * 1e3,
            "device_bytes_before": verdict.memory_before,
            "device_bytes_after": verdict.memory_after,
        }));
    }
    let mut text = format!(
        "{device}: {} tokens in {} ({} tokens/s), {} contexts, {} tokens compared with eager execution, slowest token \
         {}, device memory {}\n",
        verdict.decoded,
        human_seconds(verdict.seconds),
        human_rate(rate),
        verdict.contexts,
        verdict.verified,
        human_seconds(verdict.slowest.as_secs_f64()),
        human_bytes(verdict.memory_after),
    );
    for failure in &verdict.failures {
        text.push_str(&format!("failure: {failure}\n"));
    }
    text.push_str(if verdict.failures.is_empty() {
        "verdict: sound\n"
    } else {
        "verdict: failed\n"
    });
    output::print(&text)
}
