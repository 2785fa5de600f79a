//! `refrain eval`: measures perplexity, and the KL divergence from another model.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use refrain::Device;
use refrain_engine::{CacheTypes, Divergence, Engine, EngineOptions, Score, Windows, divergence, perplexity};
use refrain_models::Checkpoint;
use serde_json::{Value, json};

use crate::cache_args::CacheArguments;
use crate::value_parsers::count;
use crate::{Global, Usage, device, input, load, model, output};

const EXAMPLES: &str = "Examples:
  refrain eval demo --text story.txt
  refrain eval model.gguf --text story.txt --context 128 --stride 64
  refrain eval Qwen3-0.6B-4bit --text story.txt --against Qwen3-0.6B --json";

/// Default window length in tokens.
const DEFAULT_WINDOW: usize = 512;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model to evaluate
    model: String,
    /// Text to evaluate on: a UTF-8 file, or - for standard input
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Window length in tokens [default: 512, or the model's limit]
    #[arg(long, value_name = "N", value_parser = count)]
    context: Option<usize>,
    /// Tokens between the starts of windows; every window but the first scores its last N tokens [default: half a
    /// window]
    #[arg(long, value_name = "N", value_parser = count)]
    stride: Option<usize>,
    /// Measure the KL divergence from this reference model, which must have the same tokenizer; --kv-type does not
    /// apply to it
    #[arg(long, value_name = "MODEL2")]
    against: Option<String>,
    #[command(flatten)]
    cache: CacheArguments,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let checkpoint = model::open(&arguments.model)?;
    let reference = arguments.against.as_deref().map(model::open).transpose()?;
    let text = read(&arguments.text)?;
    let tokens = tokens(&checkpoint, reference.as_ref(), &text)?;
    let windows = windows(arguments, &checkpoint, reference.as_ref(), &tokens)?;
    let device = device::open(global)?;
    let cache = arguments.cache.types(&device);
    let loaded = load::load(global, &checkpoint, &device, cache, windows.context)?;
    let engine = Engine::start(&loaded.model, &engine_options(&windows, reference.is_some()))?;
    let bar = load::count_bar(global, "evaluating");
    let total = windows.predicted(tokens.len());
    let progress = |done: usize| load::update_bar(&bar, done, total);
    let result = match &reference {
        None => {
            let score = perplexity(&engine, &tokens, &windows, &progress)?;
            Evaluation::Perplexity(score)
        }
        Some(reference) => {
            let divergence = measure_divergence(global, &device, reference, &engine, &tokens, &windows, &progress)?;
            Evaluation::Divergence(divergence)
        }
    };
    if arguments.json {
        output::print_json(&as_json(&result, &windows))?
    } else {
        output::print(&as_text(&result, &windows))?
    }
    device::report(global, &device);
    Ok(())
}

enum Evaluation {
    Perplexity(Score),
    Divergence(Divergence),
}

fn measure_divergence(
    global: &Global,
    device: &Device,
    reference: &Checkpoint,
    engine: &Engine,
    tokens: &[u32],
    windows: &Windows,
    progress: &dyn Fn(usize),
) -> anyhow::Result<Divergence> {
    let loaded = load::load(
        global,
        reference,
        device,
        CacheTypes::of_device(device),
        windows.context,
    )?;
    let reference = Engine::start(&loaded.model, &engine_options(windows, true))?;
    Ok(divergence(engine, &reference, tokens, windows, progress)?)
}

/// The options of an engine for windows, of which it computes parts one after the other, or all at once. They need no
/// programs but their own.
fn engine_options(windows: &Windows, in_parts: bool) -> EngineOptions {
    EngineOptions {
        prefix_cache: in_parts,
        prepares: false,
        ..EngineOptions::single(windows.context)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        input::read_stdin("the text")
    } else {
        input::read_text(path)
    }
}

/// The text's tokens, which must be the same for both models.
fn tokens(checkpoint: &Checkpoint, reference: Option<&Checkpoint>, text: &str) -> anyhow::Result<Vec<u32>> {
    let tokens = checkpoint.tokenizer()?.encode(text, true)?;
    if let Some(reference) = reference {
        let rows = [checkpoint, reference].map(|checkpoint| checkpoint.config().vocab_size);
        if rows[0] != rows[1] {
            bail!(
                "the models cannot be compared: one has a vocabulary of {} tokens, the other of {}",
                rows[0],
                rows[1]
            );
        }
        let others = reference.tokenizer()?.encode(text, true)?;
        if let Some(at) = (0..tokens.len().max(others.len())).find(|&at| tokens.get(at) != others.get(at)) {
            bail!("the models cannot be compared: their tokenizers differ from token {at} of the text on");
        }
    }
    if tokens.len() < 2 {
        bail!("the text has {} tokens; at least two are needed", tokens.len());
    }
    Ok(tokens)
}

fn windows(
    arguments: &Arguments,
    checkpoint: &Checkpoint,
    reference: Option<&Checkpoint>,
    tokens: &[u32],
) -> anyhow::Result<Windows> {
    let limits = std::iter::once(checkpoint).chain(reference);
    let limit = limits
        .map(|checkpoint| checkpoint.config().max_position)
        .min()
        .unwrap_or(DEFAULT_WINDOW);
    let context = arguments.context.unwrap_or(DEFAULT_WINDOW.min(limit));
    if !(2..=limit).contains(&context) {
        return Err(Usage(format!(
            "--context {context} is not between 2 and the model's limit of {limit} tokens"
        ))
        .into());
    }
    let stride = arguments.stride.unwrap_or(context / 2);
    if !(1..=context).contains(&stride) {
        return Err(Usage(format!(
            "--stride {stride} is not between 1 and the context of {context} tokens"
        ))
        .into());
    }
    let bos = checkpoint
        .tokenizer()?
        .bos_id()
        .filter(|bos| tokens.first() == Some(bos));
    Ok(Windows { context, stride, bos })
}

fn as_text(outcome: &Evaluation, windows: &Windows) -> String {
    let score = |score: &Score| {
        format!(
            "perplexity {:.4} ± {:.4} ({:.5} nats per token)",
            score.perplexity(),
            score.standard_error(),
            score.nll()
        )
    };
    let Windows { context, stride, .. } = windows;
    match outcome {
        Evaluation::Perplexity(own) => {
            let tokens = own.tokens;
            format!("{}, {tokens} tokens, windows of {context} every {stride}\n", score(own))
        }
        Evaluation::Divergence(found) => format!(
            "model      {}\nreference  {}\n\
             KL divergence mean {:.6} ± {:.6}, median {:.6}, 99th percentile {:.6}, maximum {:.6} nats\n\
             same top token {:.3} %, {} tokens, windows of {context} every {stride}\n",
            score(&found.model),
            score(&found.reference),
            found.mean(),
            found.standard_error(),
            found.quantile(0.5),
            found.quantile(0.99),
            found.quantile(1.0),
            found.agreement() * 100.0,
            found.kl.len(),
        ),
    }
}

fn as_json(outcome: &Evaluation, windows: &Windows) -> Value {
    let score = |score: &Score| {
        json!({
            "nll": score.nll(),
            "perplexity": score.perplexity(),
            "standard_error": score.standard_error(),
            "tokens": score.tokens,
        })
    };
    let mut value = match outcome {
        Evaluation::Perplexity(own) => score(own),
        Evaluation::Divergence(found) => json!({
            "model": score(&found.model),
            "reference": score(&found.reference),
            "kl": {
                "mean": found.mean(),
                "standard_error": found.standard_error(),
                "median": found.quantile(0.5),
                "p99": found.quantile(0.99),
                "max": found.quantile(1.0),
            },
            "top1_agreement": found.agreement(),
            "tokens": found.kl.len(),
        }),
    };
    value["context"] = json!(windows.context);
    value["stride"] = json!(windows.stride);
    value
}
