//! `refrain chat`: a conversation of many turns.

mod command;
mod dialogue;
mod file;
mod lines;
mod settings;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use refrain_engine::{Finish, GenerateOptions, Model, Restored, Sampler, SamplerOptions, Session};
use refrain_models::Checkpoint;
use refrain_text::{Conversation, Tokenizer};

use crate::advice;
use crate::answer;
use crate::asking::{AskArguments, Prompter};
use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::output;
use crate::{Global, Usage, demo, device, interrupt, model, sampling};
use command::{ChatCommand, HELP};
use dialogue::{Answer, Dialogue, OnFull};
use lines::{Line, Lines};
use settings::ChatSettings;

const EXAMPLES: &str = "Examples:
  refrain chat demo
  refrain chat Qwen3-0.6B \"What is the tallest mountain?\" --no-think
  refrain chat Qwen3-0.6B --system \"Answer in one sentence.\" --temp 0.7
  refrain chat demo --temp 0 < questions.txt";

/// Talk with a model, turn by turn
///
/// Each line is a turn; a line that ends with \ goes on in the next, and what
/// stands between lines of """ is one turn. Where the standard input is no terminal, each of its
/// lines is a turn too, and only answers are written to the standard output.
///
/// Lines that begin with / are commands: /help lists them. Ctrl-C stops an answer; twice, or Ctrl-D,
/// leaves.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model [default: demo]
    #[arg(value_name = "MODEL")]
    first: Option<String>,
    /// The first message; several words are one
    #[arg(value_name = "MESSAGE")]
    rest: Vec<String>,
    /// MODEL, as other programs take it
    #[arg(short, long, value_name = "MODEL", hide = true)]
    model: Option<String>,
    /// Begin with a conversation that /save wrote, or any JSON list of messages
    #[arg(long, value_name = "FILE.json", conflicts_with = "system")]
    load: Option<PathBuf>,
    /// Neither read nor write the history of lines typed
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    ask: AskArguments,
    /// When the context is full: shift leaves the oldest turns out, stop ends it [default: shift]
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        hide_possible_values = true,
        help_heading = "Context"
    )]
    on_full: Option<OnFull>,
}

/// How a chat begins.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// The user's first message.
    message: String,
    load: Option<PathBuf>,
    no_history: bool,
    on_full: Option<OnFull>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.ask.prepare()?;
    let model = arguments.model.as_deref().or(arguments.first.as_deref());
    let model = model.unwrap_or(demo::NAME);
    let checkpoint = model::open_or_pull(global, model)?;
    let (tokenizer, prompter) = arguments.ask.text_side(model, &checkpoint)?;
    let Some(prompter) = prompter else {
        let why = "this model has no chat template; use `refrain run MODEL --raw`, or give one with --template FILE";
        return Err(Usage(why.to_owned()).into());
    };
    let first = arguments.first.iter().filter(|_| arguments.model.is_some());
    let words: Vec<&str> = first.chain(&arguments.rest).map(String::as_str).collect();
    let opening = Opening {
        message: words.join(" "),
        load: arguments.load.clone(),
        no_history: arguments.no_history,
        on_full: arguments.on_full,
    };
    talk(global, &arguments.ask, opening, &checkpoint, &tokenizer, prompter)
}

/// Talks until the user leaves.
///
/// # Errors
/// If the model cannot be loaded or the terminal not be read; in scripts, if anything goes wrong.
pub(crate) fn talk(
    global: &Global,
    ask: &AskArguments,
    opening: Opening,
    checkpoint: &Checkpoint,
    tokenizer: &Tokenizer,
    prompter: Prompter,
) -> anyhow::Result<ExitCode> {
    let options = sampling::options(&ask.sampling, checkpoint)?;
    Sampler::new(options.clone())?;
    let context = load::context(checkpoint.config(), ask.context(), 0, None)?;
    let mut conversation = match &opening.load {
        Some(path) => file::load(path)?,
        None => Conversation::default(),
    };
    ask.set_variables(&mut conversation);
    let device = device::open(global)?;
    load::announce_speed(global, checkpoint, &device);
    let loaded = load::load(global, checkpoint, &device, context)?;
    let mut session = Session::new(&loaded.model, context)?;
    ask.decoding.apply(&mut session);
    let on_full = opening.on_full.unwrap_or_default();
    let mut dialogue = Dialogue::new(session, tokenizer, prompter, conversation, on_full);
    if let Some(system) = &ask.system {
        dialogue.set_system(system);
    }
    let lines = Lines::new(!opening.no_history)?;
    let mut chat = Chat {
        global,
        ask,
        checkpoint,
        tokenizer,
        loaded: &loaded,
        dialogue,
        settings: ChatSettings {
            sampling: ask.sampling.clone(),
            max_tokens: ask.max_tokens.or(checkpoint.generation().max_new_tokens),
            on_full: opening.on_full,
        },
        options,
        interactive: lines.interactive(),
        markdown: !ask.no_markdown,
        last: None,
    };
    if let Some(path) = &opening.load {
        chat.restore(path);
    }
    // What is piped is there already: nobody waits less for a guess.
    if chat.interactive || !opening.message.is_empty() {
        chat.dialogue.prepare(&opening.message)?;
    }
    let left = chat.talk(&opening.message, lines)?;
    device::report(global, &device);
    Ok(left)
}

/// A chat under way.
struct Chat<'a> {
    global: &'a Global,
    ask: &'a AskArguments,
    checkpoint: &'a Checkpoint,
    tokenizer: &'a Tokenizer,
    loaded: &'a Loaded,
    dialogue: Dialogue<'a>,
    settings: ChatSettings,
    /// What the settings mean for the model.
    options: SamplerOptions,
    /// Whether someone types.
    interactive: bool,
    /// Whether the markdown of answers is drawn.
    markdown: bool,
    /// The last answer.
    last: Option<Answer>,
}

impl Chat<'_> {
    /// Takes the first message, if there is one, and then lines until there are no more.
    fn talk(&mut self, message: &str, mut lines: Lines) -> anyhow::Result<ExitCode> {
        if self.interactive {
            self.note("type a message; /help lists commands, Ctrl-D leaves");
        }
        let mut next = if message.is_empty() {
            lines.next()?
        } else {
            Line::Text(message.to_owned())
        };
        loop {
            let done = match &next {
                Line::End => return Ok(ExitCode::SUCCESS),
                Line::Blank => Ok(ControlFlow::Continue(())),
                Line::Text(text) => self.turn(text),
            };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ExitCode::SUCCESS),
                // People can mend it and go on; a script must notice.
                Err(error) if self.interactive && !error.is::<output::Closed>() => {
                    output::complain(&format!("error: {}", advice::told(&error)));
                }
                Err(error) => return Err(error),
            }
            next = lines.next()?;
        }
    }

    /// Does what a line says.
    fn turn(&mut self, line: &str) -> anyhow::Result<ControlFlow<()>> {
        match ChatCommand::parse(line).map_err(anyhow::Error::msg)? {
            None => {
                self.dialogue.say(line);
                self.answer()?;
            }
            Some(ChatCommand::Exit) => return Ok(ControlFlow::Break(())),
            Some(ChatCommand::Help) => self.tell(HELP),
            Some(ChatCommand::Clear) => {
                self.dialogue.clear();
                self.note("the conversation begins anew");
            }
            Some(ChatCommand::System(None)) => match self.dialogue.system() {
                Some(text) => self.tell(&format!("the system message is: {text}")),
                None => self.tell("there is no system message"),
            },
            Some(ChatCommand::System(Some(text))) => {
                self.dialogue.set_system(&text);
                self.note("the system message holds from the next answer on");
            }
            Some(ChatCommand::Set(None)) => self.tell(&self.settings.describe(&self.options)),
            Some(ChatCommand::Set(Some((name, value)))) => self.set(&name, &value)?,
            Some(ChatCommand::Think(think)) => {
                self.dialogue.prompter.think = think;
                self.note(match think {
                    Some(true) => "the model thinks before it answers",
                    Some(false) => "the model answers at once",
                    None => "the model thinks if its template has it so",
                });
            }
            Some(ChatCommand::Markdown(markdown)) => {
                self.markdown = markdown;
                self.note(if markdown {
                    "answers are drawn as their markdown means, where this is a terminal"
                } else {
                    "answers are written as the model has them"
                });
            }
            Some(ChatCommand::Context(None)) => {
                let session = self.dialogue.session();
                self.tell(&format!(
                    "{} of {} tokens are taken",
                    session.position(),
                    session.context()
                ));
            }
            Some(ChatCommand::Context(Some(tokens))) => self.resize(tokens)?,
            Some(ChatCommand::Regenerate) => {
                self.dialogue.take_back_answer()?;
                // The same random numbers would give the same answer.
                self.options.seed = self.options.seed.wrapping_add(1);
                self.answer()?;
            }
            Some(ChatCommand::Stats) => self.tell(&self.stats()),
            Some(ChatCommand::Save(path)) => {
                file::save(&path, self.dialogue.conversation())?;
                let state = file::state_path(&path);
                // What is being written is written to its end.
                let _deferred = interrupt::defer()?;
                self.dialogue.keep(&state)?;
                let count = self.dialogue.conversation().messages.len();
                let (path, state) = (path.display(), state.display());
                self.note(&format!(
                    "saved {count} messages to {path}, and what the model computed to {state}"
                ));
            }
            Some(ChatCommand::Load(path)) => {
                let mut conversation = file::load(&path)?;
                self.ask.set_variables(&mut conversation);
                let count = conversation.messages.len();
                self.dialogue.replace(conversation);
                self.note(&format!("loaded {count} messages from {}", path.display()));
                self.restore(&path);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes up the state beside a saved conversation, if there is one that fits.
    fn restore(&mut self, path: &Path) {
        let state = file::state_path(path);
        match state.exists().then(|| self.dialogue.restore(&state)) {
            Some(Err(error)) => self.note(&format!("the conversation will be computed again: {error}")),
            Some(Ok(Restored::ToBeComputedAgain)) => self.note(load::COMPUTED_AGAIN),
            Some(Ok(Restored::AsItWas)) | None => {}
        }
    }

    /// Changes a setting.
    fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        let mut settings = self.settings.clone();
        // One that nobody gave stays what it is.
        settings.sampling.seed = Some(self.options.seed);
        settings.set(name, value).map_err(anyhow::Error::msg)?;
        let options = sampling::options(&settings.sampling, self.checkpoint)?;
        Sampler::new(options.clone())?;
        self.dialogue.on_full = settings.on_full.unwrap_or_default();
        (self.settings, self.options) = (settings, options);
        self.note("holds from the next answer on");
        Ok(())
    }

    /// Makes the context longer or shorter.
    fn resize(&mut self, tokens: usize) -> anyhow::Result<()> {
        let (model, decoding) = (&self.loaded.model, &self.ask.decoding);
        let limit = model.config().max_position;
        if tokens > limit {
            bail!("a context of {tokens} tokens is more than this model was made for; take /ctx {limit} or less");
        }
        let more = tokens.saturating_sub(self.dialogue.session().context());
        load::check_context(self.checkpoint.config(), model.device(), more)?;
        self.dialogue.resize(tokens, |context| {
            let mut session = Session::new(model, context)?;
            decoding.apply(&mut session);
            Ok(session)
        })?;
        self.note(&format!("there is room for {tokens} tokens now"));
        Ok(())
    }

    /// Lets the model answer, and writes its text as it comes.
    fn answer(&mut self) -> anyhow::Result<()> {
        let options = GenerateOptions {
            max_tokens: self.settings.max_tokens,
            sampler: Sampler::new(self.options.clone())?,
            stop_ids: self.tokenizer.eos_ids().to_vec(),
            stop_strings: self.ask.stop.clone(),
        };
        let mut writer = self.ask.writer(self.markdown);
        let left_out = self.dialogue.left_out();
        let deferred = interrupt::defer()?;
        let answer = self.dialogue.answer(&options, &mut writer);
        drop(deferred);
        let answer = answer?;
        if self.dialogue.left_out() > left_out {
            self.note(&format!(
                "the context is full: the model no longer sees the oldest {} messages; /ctx N makes it longer",
                self.dialogue.left_out()
            ));
        }
        match answer.generation.finish {
            Finish::Context => self.note("the context is full: /ctx N makes it longer, /clear begins anew"),
            Finish::Interrupted => self.note("stopped"),
            Finish::Length => self.note("stopped after as many tokens as -n allows"),
            Finish::Stop | Finish::StopString => {}
        }
        if writer.answer.is_empty() && writer.is_thinking() {
            self.note("it was still thinking: your message is taken back");
        }
        let summary = answer::summary(&answer.generation);
        self.last = Some(answer);
        match (self.global.verbose, self.interactive && !self.global.quiet) {
            (true, _) => self.stats().lines().for_each(output::aside),
            (false, true) => output::aside(&summary),
            (false, false) => {}
        }
        Ok(())
    }

    fn stats(&self) -> String {
        let (session, model): (_, &Model) = (self.dialogue.session(), &self.loaded.model);
        let mut lines = vec![format!(
            "{}: {} messages, {} of {} tokens held; seed {}",
            model.device().name(),
            self.dialogue.conversation().messages.len(),
            session.position(),
            session.context(),
            self.options.seed,
        )];
        if let Some(Answer { generation, kept }) = &self.last {
            lines.push(format!(
                "last answer: {kept} tokens kept, {} new in the prompt; {}",
                generation.prompt_tokens,
                answer::summary(generation),
            ));
        }
        lines.push(format!("memory: {}", MemoryUse::of(model, session).line()));
        lines.join("\n")
    }

    /// Tells what was asked for.
    fn tell(&self, text: &str) {
        output::complain(text);
    }

    /// Tells what may be left out.
    fn note(&self, text: &str) {
        if !self.global.quiet {
            output::aside(&format!("({text})"));
        }
    }
}
