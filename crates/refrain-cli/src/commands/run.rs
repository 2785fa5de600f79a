//! `refrain run`: generates text from a prompt.

mod prompt;
mod response_format;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use refrain_engine::{
    Device, Engine, EngineMemory, EngineOptions, EngineRequest, Finish, Freeze, GenerateOptions, Generation, Restored,
    Restriction, Sampler, Snapshot, Speculation, TokenConstraint, Verified,
};
use refrain_formats::{AtomicFile, State};
use refrain_grammar::{Grammar, ReasoningBudget, ReasoningTokens};
use refrain_models::Checkpoint;
use refrain_text::{Conversation, Tokenizer};
use serde_json::json;

use super::chat::{self, ChatOptions};
use crate::generation_args::{GenerationArguments, PromptRenderer};
use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::output::{self, human_seconds};
use crate::response::{self, ResponseWriter};
use crate::{Global, Usage, device, interrupt, model, sampling};
use prompt::PromptArguments;
use response_format::ResponseFormatArguments;

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
    /// Use the prompt as it is, without the chat template
    #[arg(long)]
    raw: bool,
    /// Print a JSON object at the end instead of streaming text
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    format: ResponseFormatArguments,
    #[command(flatten)]
    generation: GenerationArguments,
    #[command(flatten, next_help_heading = "Context")]
    state: StateArguments,
    #[command(flatten, next_help_heading = "Debugging")]
    check: CheckArguments,
}

/// Options to load and save what was computed.
#[derive(Debug, Args)]
struct StateArguments {
    /// Continue from a state saved with --save-state; the prompt is appended to it
    #[arg(long, value_name = "FILE")]
    load_state: Option<PathBuf>,
    /// Save the state (tokens and KV cache) to this file at the end
    #[arg(long, value_name = "FILE")]
    save_state: Option<PathBuf>,
}

impl StateArguments {
    fn is_given(&self) -> bool {
        self.load_state.is_some() || self.save_state.is_some()
    }
}

/// Options to verify replay.
#[derive(Debug, Args)]
struct CheckArguments {
    /// Compare replay with eager execution and stop at the first step that differs
    #[arg(long, conflicts_with_all = ["load_state", "save_state", "mode", "tokens_per_submit", "speculate", "draft"])]
    verify: bool,
    /// With --verify: corrupt the result of this replay step (a number, or a region such as sample:0)
    #[arg(long, value_name = "REGION", requires = "verify")]
    inject_fault: Option<String>,
    /// With --verify: keep this unchanged from token to token
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
    let generation_args = &arguments.generation;
    generation_args.prepare()?;
    if let Some(option) = generation_args.template_option().filter(|_| arguments.raw) {
        return Err(Usage(format!("{option} needs the chat template, which --raw disables")).into());
    }
    if let Some(path) = &arguments.state.save_state {
        State::check_overwrite(path)?;
        AtomicFile::try_create(path)?;
    }
    let model = arguments.prompt.model()?;
    let checkpoint = model::open_or_pull(global, model)?;
    let (tokenizer, renderer) = generation_args.tokenizer_and_renderer(model, &checkpoint)?;
    let renderer = match renderer {
        Some(renderer) if arguments.starts_chat() => {
            let options = ChatOptions::default();
            return chat::run_chat(global, generation_args, options, &checkpoint, &tokenizer, renderer);
        }
        renderer => renderer.filter(|_| !arguments.raw),
    };
    let mut writer = arguments.writer();
    let sampler = Sampler::new(sampling::options(&generation_args.sampling, &checkpoint)?)?;
    let grammar = arguments.format.grammar(renderer.as_ref(), &tokenizer)?;
    let prompt = arguments.prompt.text(arguments.raw, global.quiet)?;
    let prompt = encode_prompt(&tokenizer, renderer, &prompt, generation_args, &mut writer)?;
    let constraint = arguments.constraint(grammar.as_ref(), &prompt, &tokenizer, global.quiet)?;
    let task = Task {
        global,
        arguments,
        model,
        device: device::open(global)?,
        options: GenerateOptions {
            max_tokens: generation_args.max_tokens.or(checkpoint.generation().max_new_tokens),
            sampler,
            stop_ids: tokenizer.eos_ids().to_vec(),
            stop_strings: generation_args.stop.clone(),
            ..GenerateOptions::default()
        },
        checkpoint,
        tokenizer,
        prompt: prompt.ids,
        writer,
    };
    if arguments.check.verify {
        task.verify()
    } else {
        task.generate(constraint)
    }
}

/// A text to generate.
struct Task<'a> {
    global: &'a Global,
    arguments: &'a Arguments,
    /// The model's name.
    model: &'a str,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    device: Device,
    options: GenerateOptions,
    prompt: Vec<u32>,
    writer: ResponseWriter,
}

impl Task<'_> {
    /// Generates by an engine.
    fn generate(mut self, constraint: Option<Box<dyn TokenConstraint>>) -> anyhow::Result<ExitCode> {
        let Arguments { state, generation, .. } = self.arguments;
        let held = state.load_state.as_deref().map(Snapshot::open).transpose()?;
        let mut tokens = held.as_ref().map_or(vec![], |held| held.tokens().to_vec());
        tokens.extend(&self.prompt);
        let context = self.context(tokens.len())?;
        let guesser = generation.guesser(self.global, &self.checkpoint)?;
        let cache = generation.cache.types(&self.device);
        guesser.check_memory(&self.checkpoint, &self.device, cache, context)?;
        let mut loaded = self.load(context, guesser.speculation)?;
        let draft = guesser.load(self.global, &self.device, context)?;
        // Deferred until the end, so that Ctrl-C does not interrupt saving the state.
        let _deferred = interrupt::defer()?;
        let options = EngineOptions {
            // There is no other request.
            prepares: false,
            ..generation.engine_options(&loaded.model, context, guesser.speculation, draft)
        };
        let engine = Engine::start(&loaded.model, &options)?;
        let held_tokens = tokens.len() - self.prompt.len();
        if let Some(held) = held {
            restore(&engine, held, self.global.quiet)?;
        }
        let restriction = Restriction::of(constraint.as_deref());
        loaded.prepare(|| engine.prepare((held_tokens, self.prompt.len()), restriction))?;
        let prompt_time = match self.options.max_tokens {
            Some(0) => Some(compute(&engine, &tokens)?),
            _ => None,
        };
        let request = EngineRequest {
            constraint,
            ..EngineRequest::new(tokens.clone(), self.options.clone())
        };
        let mut generation = self.writer.push_all(engine.generate(request)?.text(&self.tokenizer))?;
        generation.prompt_tokens = self.prompt.len();
        generation.time_to_first = prompt_time.unwrap_or(generation.time_to_first);
        let code = self.finish(&loaded, &generation, engine.memory().ok())?;
        // Last, so that the response is shown even if the file cannot be written.
        if let Some(path) = &state.save_state {
            tokens.extend(held_ids(&generation));
            engine.snapshot(&tokens)?.save(path)?;
        }
        Ok(code)
    }

    /// Generates by replay and by eager execution, and compares them.
    fn verify(mut self) -> anyhow::Result<ExitCode> {
        let check = &self.arguments.check;
        let context = self.context(self.prompt.len())?;
        let loaded = self.load(context, Speculation::Off)?;
        let _deferred = interrupt::defer()?;
        let freeze = check.freeze.map(Freeze::from);
        let verified = Verified::new(&loaded.model, context, check.inject_fault.as_deref(), freeze)?;
        let tokens = verified.generate(&self.prompt, &self.options)?;
        let generation = self.writer.push_all(tokens.text(&self.tokenizer))?;
        self.finish(&loaded, &generation, None)
    }

    /// The context length for a prompt of `tokens` tokens and the response.
    fn context(&self, tokens: usize) -> anyhow::Result<usize> {
        let generation = &self.arguments.generation;
        load::context(
            self.checkpoint.config(),
            generation.context(),
            tokens,
            generation.max_tokens,
        )
    }

    /// Loads the model.
    fn load(&self, context: usize, speculation: Speculation) -> anyhow::Result<Loaded> {
        let cache = self.arguments.generation.cache.types(&self.device);
        load::warn_if_slow(self.global, &self.checkpoint, &self.device, cache);
        load::load_speculating(self.global, &self.checkpoint, &self.device, cache, context, speculation)
    }

    /// Ends the response, and reports on it.
    fn finish(
        &mut self,
        loaded: &Loaded,
        generation: &Generation,
        memory: Option<EngineMemory>,
    ) -> anyhow::Result<ExitCode> {
        self.writer.finish()?;
        let memory = MemoryUse::of(&loaded.model, memory);
        if self.arguments.json {
            let json = as_json(self.model, loaded, &self.options, generation, &self.writer, &memory);
            output::print_json(&json)?;
        }
        report(self.global, loaded, generation, &self.writer, &memory);
        device::report(self.global, &self.device);
        Ok(match generation.finish {
            Finish::Interrupted => interrupt::EXIT_CODE.into(),
            _ => ExitCode::SUCCESS,
        })
    }
}

/// Computes a prompt without a response, for its state and its speed; returns how long that took.
fn compute(engine: &Engine, prompt: &[u32]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let options = GenerateOptions {
        max_tokens: Some(1),
        ..GenerateOptions::default()
    };
    let mut tokens = engine.generate(EngineRequest::new(prompt.to_vec(), options))?;
    tokens.next().transpose()?;
    Ok(start.elapsed())
}

/// The generated tokens that a state holds: all but the last one that was sampled.
fn held_ids(generation: &Generation) -> &[u32] {
    match (generation.finish, &generation.ids[..]) {
        // After them a stop token was sampled, or a grammar was complete.
        (Finish::Stop, ids) => ids,
        (_, [ids @ .., _]) => ids,
        (_, []) => &[],
    }
}

/// Restores a saved state, or says that it is recomputed.
fn restore(engine: &Engine, state: Snapshot, quiet: bool) -> anyhow::Result<()> {
    if engine.restore(state)? == Restored::Recompute && !quiet {
        output::eprint_dimmed(&format!("({})", load::STATE_RECOMPUTED));
    }
    Ok(())
}

impl Arguments {
    /// Compiles what restricts the response: its format, and the budget of its reasoning.
    fn constraint(
        &self,
        grammar: Option<&Grammar>,
        prompt: &EncodedPrompt,
        tokenizer: &Tokenizer,
        quiet: bool,
    ) -> anyhow::Result<Option<Box<dyn TokenConstraint>>> {
        let option = self.format.option();
        let compiled = |grammar| response_format::constraint(grammar, option, tokenizer, prompt.reasoning, quiet);
        let constraint = grammar.map(compiled).transpose()?;
        match &prompt.budget {
            Some(_) if self.check.verify => {
                Err(Usage("--verify cannot be combined with --reasoning-budget".to_owned()).into())
            }
            Some(budget) => Ok(Some(budget.around(constraint))),
            None => Ok(constraint),
        }
    }

    /// Returns the writer of the response; it writes nothing with --json.
    fn writer(&self) -> ResponseWriter {
        if self.json {
            return ResponseWriter::silent();
        }
        let markdown = !self.generation.no_markdown && !self.raw && !self.format.is_given();
        self.generation.writer(markdown)
    }

    /// Whether to start a chat: only a model is given at a terminal, and no option that implies a single response.
    fn starts_chat(&self) -> bool {
        let is_single = self.raw || self.json || self.check.verify || self.state.is_given() || self.format.is_given();
        !self.prompt.is_given() && io::stdout().is_terminal() && !is_single
    }
}

/// A prompt as tokens.
struct EncodedPrompt {
    ids: Vec<u32>,
    /// The tokens that delimit reasoning in the response, if there may be any.
    reasoning: Option<ReasoningTokens>,
    /// The limit of the reasoning.
    budget: Option<ReasoningBudget>,
}

/// Renders the prompt, with the chat template if there is one, and tokenizes it.
fn encode_prompt(
    tokenizer: &Tokenizer,
    renderer: Option<PromptRenderer>,
    prompt: &str,
    generation_args: &GenerationArguments,
    writer: &mut ResponseWriter,
) -> anyhow::Result<EncodedPrompt> {
    let Some(renderer) = renderer else {
        return match generation_args.template_option() {
            Some(option) => Err(Usage(format!("{option} needs a chat template, and this model has none")).into()),
            None => Ok(EncodedPrompt {
                ids: tokenizer.encode(prompt, true)?,
                reasoning: None,
                budget: None,
            }),
        };
    };
    let mut conversation = Conversation::from_prompt(generation_args.system.as_deref(), prompt);
    generation_args.set_variables(&mut conversation);
    let rendered = renderer.prompt(&conversation)?;
    renderer.configure_writer(&rendered, writer);
    Ok(EncodedPrompt {
        reasoning: renderer.reasoning(&rendered, tokenizer),
        budget: renderer.reasoning_budget(&rendered, tokenizer)?,
        ids: tokenizer.encode_rendered(&rendered)?,
    })
}

/// Prints token counts and speeds, and more if verbose.
fn report(global: &Global, loaded: &Loaded, generation: &Generation, writer: &ResponseWriter, memory: &MemoryUse) {
    if global.quiet {
        return;
    }
    if writer.is_thinking() {
        output::eprint_line("note: generation ended during reasoning, before the answer");
    }
    if let Some(tokens) = memory.shorter_chunk {
        let line = format!("(low memory: the prompt was processed in chunks of {tokens} tokens)");
        output::eprint_dimmed(&line);
    }
    output::eprint_dimmed(&response::summary(generation));
    if global.verbose {
        output::eprint_dimmed(&format!(
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
    writer: &ResponseWriter,
    memory: &MemoryUse,
) -> serde_json::Value {
    let reasoning = (!writer.reasoning.is_empty()).then_some(&writer.reasoning);
    json!({
        "model": model,
        "device": loaded.model.device().name(),
        "text": writer.answer,
        "reasoning": reasoning,
        // The field's former name.
        "thoughts": reasoning,
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
