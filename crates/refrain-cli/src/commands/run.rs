//! `refrain run`: text in, text out.

mod form;
mod prompt;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use refrain_engine::{Finish, Freeze, GenerateOptions, Generation, Restored, Sampler, Session, Snapshot, Verified};
use refrain_formats::{State, WholeFile};
use refrain_grammar::ReasoningTokens;
use refrain_text::{Conversation, Tokenizer};
use serde_json::json;

use super::chat::{self, Opening};
use crate::answer::{self, AnswerWriter};
use crate::asking::{AskArguments, Prompter};
use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::output::{self, human_seconds};
use crate::{Global, Usage, device, interrupt, model, sampling};
use form::FormArguments;
use prompt::PromptArguments;

const EXAMPLES: &str = "Examples:
  refrain run demo \"What is 348 + 276?\"
  refrain run Qwen/Qwen3-0.6B \"Why is the sky blue?\" --temp 0 -n 200
  refrain run model.gguf --raw \"Once upon a time\" -n 50 --seed 7
  refrain run Qwen3-0.6B --system \"Answer in one sentence.\" < question.txt
  refrain run Qwen3-0.6B \"Who is this about?\" --no-think -n 50 < story.txt
  refrain run demo \"Is the sky blue?\" --json-schema '{\"enum\": [\"yes\", \"no\"]}'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    prompt: PromptArguments,
    /// Give the model the prompt as it is, without the model's chat template
    #[arg(long)]
    raw: bool,
    /// Write one JSON object at the end instead of the text as it comes
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    form: FormArguments,
    #[command(flatten)]
    ask: AskArguments,
    #[command(flatten, next_help_heading = "Context")]
    state: StateArguments,
    #[command(flatten, next_help_heading = "To develop")]
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

impl StateArguments {
    fn is_wanted(&self) -> bool {
        self.load_state.is_some() || self.save_state.is_some()
    }
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
    let ask = &arguments.ask;
    ask.prepare()?;
    if let Some(wish) = ask.wants_template().filter(|_| arguments.raw) {
        return Err(Usage(format!("{wish} is for the chat template, and --raw leaves it out")).into());
    }
    if let Some(path) = &arguments.state.save_state {
        State::check_place(path)?;
        WholeFile::try_create(path)?;
    }
    let model = arguments.prompt.model()?;
    let checkpoint = model::open_or_pull(global, model)?;
    let (tokenizer, prompter) = ask.text_side(model, &checkpoint)?;
    let prompter = match prompter {
        Some(prompter) if arguments.is_talk() => {
            return chat::talk(global, ask, Opening::default(), &checkpoint, &tokenizer, prompter);
        }
        prompter => prompter.filter(|_| !arguments.raw),
    };
    let mut writer = if arguments.json {
        AnswerWriter::silent()
    } else {
        ask.writer(!ask.no_markdown && !arguments.raw && !arguments.form.is_given())
    };
    let sampler = Sampler::new(sampling::options(&ask.sampling, &checkpoint)?)?;
    let grammar = arguments.form.grammar()?;
    let prompt = arguments.prompt.text(arguments.raw, global.quiet)?;
    let (prompt, reasoning) = prompt_ids(&tokenizer, prompter, &prompt, ask, &mut writer)?;
    let constraint = grammar.map(|grammar| form::constraint(&grammar, &tokenizer, reasoning));
    let constraint = constraint.transpose()?;
    let most = ask.max_tokens;
    let state = arguments.state.load_state.as_deref().map(Snapshot::open).transpose()?;
    let held = state.as_ref().map_or(0, |state| state.tokens().len());
    let context = load::context(checkpoint.config(), ask.context(), held + prompt.len(), most)?;
    let device = device::open(global)?;
    load::announce_speed(global, &checkpoint, &device);
    let mut loaded = load::load(global, &checkpoint, &device, context)?;
    let options = GenerateOptions {
        max_tokens: most.or(checkpoint.generation().max_new_tokens),
        sampler,
        stop_ids: tokenizer.eos_ids().to_vec(),
        stop_strings: ask.stop.clone(),
    };
    let mut session = Session::new(&loaded.model, context)?;
    ask.decoding.apply(&mut session);
    if let Some(state) = &state
        && session.restore(state)? == Restored::ToBeComputedAgain
        && !global.quiet
    {
        output::aside(&format!("({})", load::COMPUTED_AGAIN));
    }
    let check = &arguments.check;
    // Until the end: a state that is being saved is saved.
    let _deferred = interrupt::defer()?;
    let tokens = if check.verify {
        let freeze = check.freeze.map(Freeze::from);
        let verified = Verified::new(&loaded.model, context, check.inject_fault.as_deref(), freeze)?;
        verified.generate(&prompt, &options)?
    } else if let Some(constraint) = constraint {
        loaded.prepare(&mut session, |session| session.prepare_within(prompt.len()))?;
        session.generate_within(&prompt, &options, constraint)?
    } else {
        loaded.prepare(&mut session, |session| session.prepare(prompt.len()))?;
        session.generate(&prompt, &options)?
    };
    let generation = writer.take_all(tokens.text(&tokenizer))?;
    writer.end()?;
    let memory = MemoryUse::of(&loaded.model, &session);
    if arguments.json {
        output::print_json(&as_json(model, &loaded, &options, &generation, &writer, &memory))?;
    }
    report(global, &loaded, &generation, &writer, &memory);
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

impl Arguments {
    /// Whether someone at a terminal gave nothing but a model, and nothing that a single answer is needed for.
    fn is_talk(&self) -> bool {
        let one_answer = self.raw || self.json || self.check.verify || self.state.is_wanted() || self.form.is_given();
        !self.prompt.is_given() && io::stdout().is_terminal() && !one_answer
    }
}

/// The prompt's tokens: by the chat template if the model has one and the user does not object; and between which tokens
/// the model may think then.
fn prompt_ids(
    tokenizer: &Tokenizer,
    prompter: Option<Prompter>,
    prompt: &str,
    ask: &AskArguments,
    writer: &mut AnswerWriter,
) -> anyhow::Result<(Vec<u32>, Option<ReasoningTokens>)> {
    let Some(prompter) = prompter else {
        return match ask.wants_template() {
            Some(wish) => Err(Usage(format!("{wish} needs a chat template, and this model has none")).into()),
            None => Ok((tokenizer.encode(prompt, true)?, None)),
        };
    };
    let mut conversation = Conversation::from_prompt(ask.system.as_deref(), prompt);
    ask.set_variables(&mut conversation);
    let rendered = prompter.prompt(&conversation)?;
    prompter.watch(&rendered, writer);
    let reasoning = prompter.reasoning(&rendered, tokenizer);
    Ok((tokenizer.encode_rendered(&rendered)?, reasoning))
}

/// Tells what the answer cost: a line, more if that is wanted.
fn report(global: &Global, loaded: &Loaded, generation: &Generation, writer: &AnswerWriter, memory: &MemoryUse) {
    if global.quiet {
        return;
    }
    if writer.is_thinking() {
        output::complain("note: the text ended before the model had thought it over and answered");
    }
    if let Some(fewer) = memory.shorter_chunk {
        let line = format!("(memory is short: the prompt went in by {fewer} tokens at a time)");
        output::aside(&line);
    }
    output::aside(&answer::summary(generation));
    if global.verbose {
        output::aside(&format!(
            "{}: loaded in {}; memory: {}",
            loaded.model.device().name(),
            human_seconds(loaded.time.as_secs_f64()),
            memory.line()
        ));
    }
}

fn as_json(
    model: &str,
    loaded: &Loaded,
    options: &GenerateOptions,
    generation: &Generation,
    writer: &AnswerWriter,
    memory: &MemoryUse,
) -> serde_json::Value {
    json!({
        "model": model,
        "device": loaded.model.device().name(),
        "text": writer.answer,
        "thoughts": (!writer.reasoning.is_empty()).then_some(&writer.reasoning),
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
