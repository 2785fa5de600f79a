//! `refrain run`: text in, text out.

use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::Args;
use refrain_engine::{Finish, GenerateOptions, Generation, Sampler, Session, generate};
use refrain_formats::{Checkpoint, Conversation, Tokenizer};
use serde_json::json;

use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::output::{self, human_rate, human_seconds};
use crate::sampling::{self, SamplingArguments};
use crate::{Global, Usage, demo, device, input, interrupt, model};

const EXAMPLES: &str = "Examples:
  refrain run demo \"What is 348 + 276?\"
  refrain run Qwen3-0.6B \"Why is the sky blue?\" --temp 0 -n 200
  refrain run model.gguf --raw \"Once upon a time\" -n 50 --seed 7
  refrain run Qwen3-0.6B --system \"Answer in one sentence.\" < question.txt";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    #[arg(default_value = demo::NAME)]
    model: String,
    /// The prompt; read from standard input if not given or `-`, without the newline at its end (kept with --raw)
    prompt: Option<String>,
    /// Give the model the prompt as it is, without the model's chat template
    #[arg(long)]
    raw: bool,
    /// System message for the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Tokens to generate at most [default: until the model ends or the context is full]
    #[arg(short = 'n', long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Tokens that prompt and answer may have together [default: 4096 or what the prompt and -n
    /// need, up to the model's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// End the text before this string (may be repeated)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Write one JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArguments,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.stop.iter().any(String::is_empty) {
        return Err(Usage("--stop needs a text to stop at".to_owned()).into());
    }
    let checkpoint = model::open(&arguments.model)?;
    let tokenizer = checkpoint.tokenizer()?;
    let sampler = Sampler::new(sampling::options(&arguments.sampling, checkpoint.generation()))?;
    let prompt = prompt_ids(&checkpoint, &tokenizer, arguments)?;
    let asked = arguments.ctx.map(|context| context as usize);
    let most = arguments.max_tokens;
    let context = load::context(checkpoint.config(), asked, prompt.len(), most)?;
    let device = device::open(global)?;
    let loaded = load::load(global, &checkpoint, &device, context)?;
    let mut session = Session::new(&loaded.model, context)?;
    let options = GenerateOptions {
        max_tokens: most.or(checkpoint.generation().max_new_tokens),
        sampler,
        stop_ids: tokenizer.eos_ids().to_vec(),
        stop_strings: arguments.stop.clone(),
        tokenizer: &tokenizer,
    };
    let generation = stream(&mut session, &prompt, &options, arguments.json)?;
    let memory = MemoryUse::of(&loaded.model, &session);
    if arguments.json {
        output::print_json(&as_json(arguments, &loaded, &options, &generation, &memory))?;
    }
    if !global.quiet {
        report(&loaded, &generation, &memory);
    }
    device::report(global, &device);
    Ok(match generation.finish {
        Finish::Interrupted => interrupt::EXIT_CODE.into(),
        _ => ExitCode::SUCCESS,
    })
}

/// The prompt's tokens: by the chat template if the model has one and the user does not object.
fn prompt_ids(checkpoint: &Checkpoint, tokenizer: &Tokenizer, arguments: &Arguments) -> anyhow::Result<Vec<u32>> {
    let prompt = match arguments.prompt.as_deref() {
        Some(prompt) if prompt != "-" => prompt.to_owned(),
        _ if arguments.raw => input::read_stdin("the prompt")?,
        _ => {
            let text = input::read_stdin("the prompt")?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            text.strip_suffix('\r').unwrap_or(text).to_owned()
        }
    };
    let template = match arguments.raw {
        true => None,
        false => checkpoint.chat_template()?,
    };
    let system = arguments.system.as_deref();
    let ids = match template {
        Some(template) => {
            let conversation = Conversation::from_prompt(system, &prompt);
            tokenizer.encode_rendered(&template.render(&conversation, true)?)?
        }
        None if system.is_some() => {
            let why = "--system needs a chat template, and this model has none";
            return Err(Usage(why.to_owned()).into());
        }
        None => tokenizer.encode(&prompt, true)?,
    };
    match ids.is_empty() {
        true => Err(Usage("the prompt is empty".to_owned()).into()),
        false => Ok(ids),
    }
}

/// Generates and, unless `silent`, writes the text to the standard output as it comes.
fn stream(
    session: &mut Session<'_>,
    prompt: &[u32],
    options: &GenerateOptions<'_>,
    silent: bool,
) -> anyhow::Result<Generation> {
    let deferred = interrupt::defer()?;
    let mut failure = None;
    let mut on_text = |text: &str, _: u32| {
        let shown = if silent || text.is_empty() {
            Ok(())
        } else {
            output::print(text)
        };
        if let Err(error) = shown {
            failure = Some(error);
        }
        match failure.is_some() || interrupt::requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let generation = generate(session, prompt, options, &mut on_text)?;
    if let Some(error) = failure {
        return Err(error);
    }
    drop(deferred);
    if !silent && !generation.text.ends_with('\n') {
        output::print("\n")?;
    }
    Ok(generation)
}

fn report(loaded: &Loaded, generation: &Generation, memory: &MemoryUse) {
    let rate = |rate: Option<f64>| match rate {
        Some(rate) => format!(", {} tokens/s", human_rate(rate)),
        None => String::new(),
    };
    output::complain(&format!(
        "{}: prompt {} tokens{}; first token after {}; {} tokens{}; end: {}",
        loaded.model.device().name(),
        generation.prompt_tokens,
        rate(generation.prompt_rate()),
        human_seconds(generation.time_to_first.as_secs_f64()),
        generation.ids.len(),
        rate(generation.decode_rate()),
        generation.finish.name(),
    ));
    let load = human_seconds(loaded.time.as_secs_f64());
    output::complain(&format!("loaded in {load}; memory: {}", memory.line()));
}

fn as_json(
    arguments: &Arguments,
    loaded: &Loaded,
    options: &GenerateOptions<'_>,
    generation: &Generation,
    memory: &MemoryUse,
) -> serde_json::Value {
    json!({
        "model": arguments.model,
        "device": loaded.model.device().name(),
        "text": generation.text,
        "ids": generation.ids,
        "finish": generation.finish.name(),
        "prompt_tokens": generation.prompt_tokens,
        "sampling": sampling::json(options.sampler.options()),
        "timings": {
            "load_s": loaded.time.as_secs_f64(),
            "time_to_first_token_s": generation.time_to_first.as_secs_f64(),
            "prompt_tokens_per_s": generation.prompt_rate(),
            "decode_s": generation.decode_time.as_secs_f64(),
            "decode_tokens_per_s": generation.decode_rate(),
        },
        "memory": memory.json(),
    })
}
