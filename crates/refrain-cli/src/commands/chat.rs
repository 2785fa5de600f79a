//! `refrain chat`: an interactive conversation.

mod command;
mod file;
mod line_reader;
mod session;
mod settings;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use refrain_engine::{Engine, EngineOptions, Finish, GenerateOptions, Restored, Sampler, SamplerOptions};
use refrain_models::{Checkpoint, demo};
use refrain_text::{Conversation, Tokenizer};

use crate::generation_args::{GenerationArguments, PromptRenderer};
use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::{Global, Usage, device, error_hints, hyphen_text, interrupt, model, output, response, sampling};
use command::{ChatCommand, HELP};
use line_reader::{Input, LineReader};
use session::{ChatSession, OnFull, Response};
use settings::ChatSettings;

const EXAMPLES: &str = "Examples:
  refrain chat demo
  refrain chat Qwen3-0.6B \"What is the tallest mountain?\" --no-think
  refrain chat Qwen3-0.6B --system \"Answer in one sentence.\" --temp 0.7
  refrain chat demo --temp 0 < questions.txt";

/// Chat with a model interactively
///
/// Each line is a message. A line that ends with \ continues on the next line, and lines between """ are one message.
/// If standard input is not a terminal, each of its lines is a message, and only responses are written to standard output.
///
/// Lines that begin with / are commands: /help lists them. Ctrl-C stops a response; pressed twice, or Ctrl-D, it exits.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model [default: demo]
    #[arg(value_name = "MODEL")]
    first: Option<String>,
    /// The first message, as one or several arguments
    #[arg(value_name = "MESSAGE", value_parser = hyphen_text::text)]
    rest: Vec<String>,
    /// MODEL, as in other programs
    #[arg(short, long, value_name = "MODEL", hide = true)]
    model: Option<String>,
    /// Load a conversation saved with /save, or any JSON list of messages
    #[arg(long, value_name = "FILE.json", conflicts_with = "system")]
    load: Option<PathBuf>,
    /// Neither read nor write the input history
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    generation: GenerationArguments,
    /// When the context is full: shift drops the oldest messages, stop ends the response [default: shift]
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        hide_possible_values = true,
        help_heading = "Context"
    )]
    on_full: Option<OnFull>,
}

/// How to start a chat.
#[derive(Debug, Default)]
pub(crate) struct ChatOptions {
    /// The user's first message.
    message: String,
    load: Option<PathBuf>,
    no_history: bool,
    on_full: Option<OnFull>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.generation.prepare()?;
    let model = arguments.model.as_deref().or(arguments.first.as_deref());
    let model = model.unwrap_or(demo::NAME);
    let checkpoint = model::open_or_pull(global, model)?;
    let (tokenizer, renderer) = arguments.generation.tokenizer_and_renderer(model, &checkpoint)?;
    let Some(renderer) = renderer else {
        let why = "this model has no chat template; use `refrain run MODEL --raw`, or pass one with --template FILE";
        return Err(Usage(why.to_owned()).into());
    };
    let first = arguments.first.iter().filter(|_| arguments.model.is_some());
    let words: Vec<&str> = first.chain(&arguments.rest).map(String::as_str).collect();
    let options = ChatOptions {
        message: words.join(" "),
        load: arguments.load.clone(),
        no_history: arguments.no_history,
        on_full: arguments.on_full,
    };
    run_chat(
        global,
        &arguments.generation,
        options,
        &checkpoint,
        &tokenizer,
        renderer,
    )
}

/// Runs a chat until the user exits.
///
/// # Errors
/// If the model cannot be loaded or the terminal cannot be read; in scripts, on the first error.
pub(crate) fn run_chat(
    global: &Global,
    generation: &GenerationArguments,
    options: ChatOptions,
    checkpoint: &Checkpoint,
    tokenizer: &Tokenizer,
    renderer: PromptRenderer,
) -> anyhow::Result<ExitCode> {
    let sampler_options = sampling::options(&generation.sampling, checkpoint)?;
    Sampler::new(sampler_options.clone())?;
    let context = load::context(checkpoint.config(), generation.context(), 0, None)?;
    let mut conversation = match &options.load {
        Some(path) => file::load(path)?,
        None => Conversation::default(),
    };
    generation.set_variables(&mut conversation);
    let device = device::open(global)?;
    let cache = generation.cache.types(&device);
    load::warn_if_slow(global, checkpoint, &device, cache);
    let guesser = generation.guesser(global, checkpoint)?;
    guesser.check_memory(checkpoint, &device, cache, context)?;
    let loaded = load::load_speculating(global, checkpoint, &device, cache, context, guesser.speculation)?;
    let draft = guesser.load(global, &device, context)?;
    let engine_options = generation.engine_options(&loaded.model, context, guesser.speculation, draft);
    let engine = Engine::start(&loaded.model, &engine_options)?;
    let on_full = options.on_full.unwrap_or_default();
    let mut session = ChatSession::new(engine, tokenizer, renderer, conversation, on_full);
    if let Some(system) = &generation.system {
        session.set_system(system);
    }
    let reader = LineReader::new(!options.no_history)?;
    let mut chat = Chat {
        global,
        generation,
        checkpoint,
        tokenizer,
        loaded: &loaded,
        options: engine_options,
        session,
        settings: ChatSettings {
            sampling: generation.sampling.clone(),
            max_tokens: generation.max_tokens.or(checkpoint.generation().max_new_tokens),
            on_full: options.on_full,
        },
        sampler_options,
        interactive: reader.is_interactive(),
        markdown: !generation.no_markdown,
        last: None,
    };
    if let Some(path) = &options.load {
        chat.restore(path);
    }
    // Piped messages arrive at once, so preparing for a guessed length would not save time.
    if chat.interactive || !options.message.is_empty() {
        chat.session.prepare(&options.message)?;
    }
    let code = chat.run(&options.message, reader)?;
    device::report(global, &device);
    Ok(code)
}

/// A running chat.
struct Chat<'a> {
    global: &'a Global,
    generation: &'a GenerationArguments,
    checkpoint: &'a Checkpoint,
    tokenizer: &'a Tokenizer,
    loaded: &'a Loaded,
    /// Those of the engine.
    options: EngineOptions,
    session: ChatSession<'a>,
    settings: ChatSettings,
    /// The settings resolved for the model.
    sampler_options: SamplerOptions,
    /// Whether standard input is a terminal.
    interactive: bool,
    /// Whether Markdown is rendered.
    markdown: bool,
    /// The last response.
    last: Option<Response>,
}

impl Chat<'_> {
    /// Processes the first message, if there is one, and then lines until the end of input.
    fn run(&mut self, message: &str, mut reader: LineReader) -> anyhow::Result<ExitCode> {
        if self.interactive {
            self.note("type a message; /help lists commands, Ctrl-D exits");
        }
        let mut next = if message.is_empty() {
            reader.next()?
        } else {
            Input::Text(message.to_owned())
        };
        loop {
            let result = match &next {
                Input::End => return Ok(ExitCode::SUCCESS),
                Input::Blank => Ok(ControlFlow::Continue(())),
                Input::Text(text) => self.process(text),
            };
            match result {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ExitCode::SUCCESS),
                // An interactive user can correct the mistake and continue; a script must fail.
                Err(error) if self.interactive && !error.is::<output::StdoutClosed>() => {
                    output::eprint_line(&format!("error: {}", error_hints::with_hints(&error)));
                }
                Err(error) => return Err(error),
            }
            next = reader.next()?;
        }
    }

    /// Processes a message or command.
    fn process(&mut self, line: &str) -> anyhow::Result<ControlFlow<()>> {
        match ChatCommand::parse(line).map_err(anyhow::Error::msg)? {
            None => {
                self.session.add_message(line);
                self.respond()?;
            }
            Some(ChatCommand::Exit) => return Ok(ControlFlow::Break(())),
            Some(ChatCommand::Help) => self.print(HELP),
            Some(ChatCommand::Clear) => {
                self.session.clear();
                self.note("conversation cleared");
            }
            Some(ChatCommand::System(None)) => match self.session.system() {
                Some(text) => self.print(&format!("system message: {text}")),
                None => self.print("no system message is set"),
            },
            Some(ChatCommand::System(Some(text))) => {
                self.session.set_system(&text);
                self.note("the system message applies from the next response on");
            }
            Some(ChatCommand::Set(None)) => self.print(&self.settings.describe(&self.sampler_options)),
            Some(ChatCommand::Set(Some((name, value)))) => self.set(&name, &value)?,
            Some(ChatCommand::Think(think)) => {
                self.session.renderer.think = think;
                self.note(match think {
                    Some(true) => "reasoning enabled",
                    Some(false) => "reasoning disabled",
                    None => "reasoning as the chat template sets it",
                });
            }
            Some(ChatCommand::Markdown(markdown)) => {
                self.markdown = markdown;
                self.note(if markdown {
                    "Markdown is rendered on a terminal"
                } else {
                    "Markdown is printed as plain text"
                });
            }
            Some(ChatCommand::Context(None)) => {
                let (used, all) = (self.session.used(), self.session.context());
                self.print(&format!("{used} of {all} tokens used"));
            }
            Some(ChatCommand::Context(Some(tokens))) => self.resize(tokens)?,
            Some(ChatCommand::Regenerate) => {
                self.session.drop_last_response()?;
                // The same random numbers would give the same response.
                self.sampler_options.seed = self.sampler_options.seed.wrapping_add(1);
                self.respond()?;
            }
            Some(ChatCommand::Stats) => self.print(&self.stats()),
            Some(ChatCommand::Save(path)) => {
                file::save(&path, self.session.conversation())?;
                let state = file::state_path(&path);
                // Saving must not be interrupted.
                let _deferred = interrupt::defer()?;
                self.session.save_state(&state)?;
                let count = self.session.conversation().messages.len();
                let (path, state) = (path.display(), state.display());
                self.note(&format!(
                    "saved {count} messages to {path}, and the KV cache to {state}"
                ));
            }
            Some(ChatCommand::Load(path)) => {
                let mut conversation = file::load(&path)?;
                self.generation.set_variables(&mut conversation);
                let count = conversation.messages.len();
                self.session.replace(conversation);
                self.note(&format!("loaded {count} messages from {}", path.display()));
                self.restore(&path);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Restores the state saved with a conversation, if there is one that fits.
    fn restore(&mut self, path: &Path) {
        let state = file::state_path(path);
        match state.exists().then(|| self.session.restore_state(&state)) {
            Some(Err(error)) => self.note(&format!("the conversation will be recomputed: {error}")),
            Some(Ok(Restored::Recompute)) => self.note(load::STATE_RECOMPUTED),
            Some(Ok(Restored::Resumed)) | None => {}
        }
    }

    /// Changes a setting.
    fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        let mut settings = self.settings.clone();
        // A random seed stays the same.
        settings.sampling.seed = Some(self.sampler_options.seed);
        settings.set(name, value).map_err(anyhow::Error::msg)?;
        let options = sampling::options(&settings.sampling, self.checkpoint)?;
        Sampler::new(options.clone())?;
        self.session.on_full = settings.on_full.unwrap_or_default();
        (self.settings, self.sampler_options) = (settings, options);
        self.note("applies from the next response on");
        Ok(())
    }

    /// Changes the context length.
    fn resize(&mut self, tokens: usize) -> anyhow::Result<()> {
        let model = &self.loaded.model;
        let limit = model.config().max_position;
        if tokens > limit {
            bail!("a context of {tokens} tokens exceeds this model's limit; use /ctx {limit} or less");
        }
        let more = tokens.saturating_sub(self.session.context());
        load::check_context(model, more)?;
        let start = |context| {
            let options = EngineOptions {
                context,
                cache_tokens: context,
                ..self.options.clone()
            };
            Engine::start(model, &options)
        };
        self.session.resize(tokens, start)?;
        self.note(&format!("the context length is now {tokens} tokens"));
        Ok(())
    }

    /// Generates a response and streams it.
    fn respond(&mut self) -> anyhow::Result<()> {
        let options = GenerateOptions {
            max_tokens: self.settings.max_tokens,
            sampler: Sampler::new(self.sampler_options.clone())?,
            stop_ids: self.tokenizer.eos_ids().to_vec(),
            stop_strings: self.generation.stop.clone(),
            stop_strings_after: 0,
        };
        let mut writer = self.generation.writer(self.markdown);
        let dropped = self.session.dropped_messages();
        let deferred = interrupt::defer()?;
        let response = self.session.respond(&options, &mut writer);
        drop(deferred);
        let response = response?;
        if self.session.dropped_messages() > dropped {
            self.note(&format!(
                "the context is full: the model no longer sees the oldest {} messages; use /ctx N for a longer context",
                self.session.dropped_messages()
            ));
        }
        match response.generation.finish {
            Finish::Context => {
                self.note("the context is full: use /ctx N for a longer context, or /clear to start over")
            }
            Finish::Interrupted => self.note("interrupted"),
            Finish::Length => self.note("stopped at the token limit (-n)"),
            Finish::Stop | Finish::StopString => {}
        }
        if writer.answer.is_empty() && writer.is_thinking() {
            self.note("generation ended during reasoning: your message was removed from the conversation");
        }
        let summary = response::summary(&response.generation);
        self.last = Some(response);
        if self.global.verbose {
            self.stats().lines().for_each(output::eprint_dimmed);
        } else if self.interactive && !self.global.quiet {
            output::eprint_dimmed(&summary);
        }
        Ok(())
    }

    fn stats(&self) -> String {
        let (session, model) = (&self.session, &self.loaded.model);
        let mut lines = vec![format!(
            "{}: {} messages, {} of {} tokens used; seed {}",
            model.device().name(),
            session.conversation().messages.len(),
            session.used(),
            session.context(),
            self.sampler_options.seed,
        )];
        if let Some(Response { generation, cached }) = &self.last {
            lines.push(format!(
                "last response: {cached} prompt tokens cached, {} processed; {}",
                generation.prompt_tokens,
                response::summary(generation),
            ));
        }
        lines.push(format!(
            "memory: {}",
            MemoryUse::of(model, session.engine().memory().ok()).line()
        ));
        lines.join("\n")
    }

    /// Prints the reply to a command.
    fn print(&self, text: &str) {
        output::eprint_line(text);
    }

    /// Prints a note unless quiet.
    fn note(&self, text: &str) {
        if !self.global.quiet {
            output::eprint_dimmed(&format!("({text})"));
        }
    }
}
