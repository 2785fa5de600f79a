//! `refrain run`: text in, text out.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use refrain_engine::{
    Error, Finish, Freeze, GenerateOptions, Generation, Restored, Sampler, Session, Snapshot, Verified, generate,
};
use refrain_formats::{Checkpoint, Conversation, State, Tokenizer, WholeFile};
use serde_json::json;

use crate::decoding::DecodingArguments;
use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::numbers::most_tokens;
use crate::output::{self, human_rate, human_seconds};
use crate::sampling::{self, SamplingArguments};
use crate::{Global, Usage, demo, device, input, interrupt, model};

const EXAMPLES: &str = "Examples:
  refrain run demo \"What is 348 + 276?\"
  refrain run Qwen/Qwen3-0.6B \"Why is the sky blue?\" --temp 0 -n 200
  refrain run model.gguf --raw \"Once upon a time\" -n 50 --seed 7
  refrain run Qwen3-0.6B --system \"Answer in one sentence.\" < question.txt";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model; one of the Hugging Face hub is downloaded if it is not here yet
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
    #[arg(short = 'n', long, aliases = ["n-predict", "predict"], value_name = "N", value_parser = most_tokens)]
    max_tokens: Option<usize>,
    /// Tokens that prompt and answer may have together [default: 4096 or what the prompt and -n
    /// need, up to the model's limit]
    #[arg(long, alias = "ctx-size", short_alias = 'c', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// End the text before this string (may be repeated)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Write one JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    decoding: DecodingArguments,
    #[command(flatten)]
    state: StateArguments,
    #[command(flatten)]
    check: CheckArguments,
}

/// Where the session's state comes from and goes to.
#[derive(Debug, Args)]
struct StateArguments {
    /// Go on from the state in this file, which --save-state made: the prompt comes behind what it holds
    #[arg(long, value_name = "FILE")]
    load_state: Option<PathBuf>,
    /// Write the session's state to this file at the end
    #[arg(long, value_name = "FILE")]
    save_state: Option<PathBuf>,
}

/// How replay is checked.
#[derive(Debug, Args)]
struct CheckArguments {
    /// Run replay and eager execution side by side and stop at the first step that differs, naming it
    #[arg(long, conflicts_with_all = ["load_state", "save_state", "mode", "tokens_per_submit"])]
    verify: bool,
    /// With --verify: put a wrong number behind this step of the replay (a number, or such as sample:0)
    #[arg(long, value_name = "REGION", requires = "verify")]
    inject_fault: Option<String>,
    /// With --verify: hold this still from token to token
    #[arg(long, value_enum, value_name = "WHAT", requires = "verify")]
    freeze: Option<FreezeArgument>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FreezeArgument {
    /// The position of the current token
    Position,
    /// The current token
    Input,
    /// Keys, values and recurrent states
    State,
}

impl From<FreezeArgument> for Freeze {
    fn from(argument: FreezeArgument) -> Freeze {
        match argument {
            FreezeArgument::Position => Freeze::Position,
            FreezeArgument::Input => Freeze::Input,
            FreezeArgument::State => Freeze::State,
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.stop.iter().any(String::is_empty) {
        return Err(Usage("--stop needs a text to stop at".to_owned()).into());
    }
    if let Some(path) = &arguments.state.save_state {
        State::check_place(path)?;
        WholeFile::try_create(path)?;
    }
    let checkpoint = model::open_or_pull(global, &arguments.model)?;
    let tokenizer = checkpoint.tokenizer()?;
    let sampler = Sampler::new(sampling::options(&arguments.sampling, &checkpoint)?)?;
    let prompt = prompt_ids(&checkpoint, &tokenizer, arguments)?;
    let asked = arguments.ctx.map(|context| context as usize);
    let most = arguments.max_tokens;
    let state = arguments.state.load_state.as_deref().map(Snapshot::open).transpose()?;
    let held = state.as_ref().map_or(0, |state| state.tokens().len());
    let context = load::context(checkpoint.config(), asked, held + prompt.len(), most)?;
    let device = device::open(global)?;
    load::announce_speed(global, &checkpoint, &device);
    let loaded = load::load(global, &checkpoint, &device, context)?;
    let options = GenerateOptions {
        max_tokens: most.or(checkpoint.generation().max_new_tokens),
        sampler,
        stop_ids: tokenizer.eos_ids().to_vec(),
        stop_strings: arguments.stop.clone(),
        tokenizer: &tokenizer,
    };
    let mut session = Session::new(&loaded.model, context)?;
    arguments.decoding.apply(&mut session);
    if let Some(state) = &state
        && session.restore(state)? == Restored::ToBeComputedAgain
        && !global.quiet
    {
        output::complain(
            "note: the state was made on another kind of device, or in a context of another length, which this \
             model's positions depend on: its tokens are computed again",
        );
    }
    let check = &arguments.check;
    let generation = match check.verify {
        false => stream(&options, arguments.json, |options, on_text| {
            generate(&mut session, &prompt, options, on_text)
        })?,
        true => {
            let freeze = check.freeze.map(Freeze::from);
            let verified = Verified::new(&loaded.model, context, check.inject_fault.as_deref(), freeze)?;
            stream(&options, arguments.json, |options, on_text| {
                verified.generate(&prompt, options, on_text)
            })?
        }
    };
    let memory = MemoryUse::of(&loaded.model, &session);
    if arguments.json {
        output::print_json(&as_json(arguments, &loaded, &options, &generation, &memory))?;
    }
    if !global.quiet {
        report(&loaded, &generation, &memory);
    }
    device::report(global, &device);
    // Last: whatever happens to the file, the answer has been shown.
    if let Some(path) = &arguments.state.save_state {
        session.snapshot()?.save(path)?;
    }
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
    if prompt.is_empty() {
        let why = "the prompt is empty; give one behind the model's name, or on the standard input";
        return Err(Usage(why.to_owned()).into());
    }
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
    Ok(ids)
}

/// Takes text and token.
type OnText<'a> = dyn FnMut(&str, u32) -> ControlFlow<()> + 'a;

/// Generates and, unless `silent`, writes the text to the standard output as it comes.
fn stream(
    options: &GenerateOptions<'_>,
    silent: bool,
    generate: impl FnOnce(&GenerateOptions<'_>, &mut OnText<'_>) -> Result<Generation, Error>,
) -> anyhow::Result<Generation> {
    let deferred = interrupt::defer()?;
    let mut failure = None;
    let mut on_text = |text: &str, _: u32| {
        let shown = if silent || text.is_empty() {
            Ok(())
        } else {
            output::print_text(text)
        };
        if let Err(error) = shown {
            failure = Some(error);
        }
        match failure.is_some() || interrupt::requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let generation = generate(options, &mut on_text)?;
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
