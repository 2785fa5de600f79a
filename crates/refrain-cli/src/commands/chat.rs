//! `refrain chat`: a conversation of many turns.

mod command;
mod dialogue;
mod file;
mod lines;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use refrain_engine::{Finish, GenerateOptions, Model, Sampler, SamplerOptions, Session};
use refrain_formats::Tokenizer;

use crate::load::{self, Loaded};
use crate::memory::MemoryUse;
use crate::numbers::most_tokens;
use crate::output::{self, human_rate, human_seconds};
use crate::sampling::{self, SamplingArguments};
use crate::{Global, Usage, demo, device, interrupt, model};
use command::{Command, HELP};
use dialogue::{Answer, Dialogue};
use lines::{Line, Lines};

const EXAMPLES: &str = "Examples:
  refrain chat demo
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
    /// The model
    #[arg(default_value = demo::NAME)]
    model: String,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Begin with a conversation that /save wrote, or any JSON list of messages
    #[arg(long, value_name = "FILE.json", conflicts_with = "system")]
    load: Option<PathBuf>,
    /// Tokens of one answer at most [default: until the model ends it or the context is full]
    #[arg(short = 'n', long, aliases = ["n-predict", "predict"], value_name = "N", value_parser = most_tokens)]
    max_tokens: Option<usize>,
    /// Tokens that the conversation may have [default: 4096, or the model's limit]
    #[arg(long, alias = "ctx-size", short_alias = 'c', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// Neither read nor write the history of lines typed
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    sampling: SamplingArguments,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let checkpoint = model::open_or_pull(global, &arguments.model)?;
    let tokenizer = checkpoint.tokenizer()?;
    let Some(template) = checkpoint.chat_template()? else {
        let why = "this model has no chat template; use `refrain run MODEL --raw`";
        return Err(Usage(why.to_owned()).into());
    };
    let settings = sampling::options(&arguments.sampling, &checkpoint)?;
    Sampler::new(settings.clone())?;
    let asked = arguments.ctx.map(|context| context as usize);
    let context = load::context(checkpoint.config(), asked, 0, None)?;
    let conversation = match &arguments.load {
        Some(path) => file::load(path)?,
        None => Default::default(),
    };
    let device = device::open(global)?;
    load::announce_speed(global, &checkpoint, &device);
    let loaded = load::load(global, &checkpoint, &device, context)?;
    let session = Session::new(&loaded.model, context)?;
    let mut dialogue = Dialogue::new(session, &tokenizer, template, conversation);
    if let Some(system) = &arguments.system {
        dialogue.set_system(system);
    }
    let mut chat = Chat {
        global,
        tokenizer: &tokenizer,
        loaded: &loaded,
        dialogue,
        settings,
        max_tokens: arguments.max_tokens.or(checkpoint.generation().max_new_tokens),
        last: None,
    };
    if let Some(path) = &arguments.load {
        chat.restore(path);
    }
    let lines = Lines::new(!arguments.no_history)?;
    let left = chat.talk(lines)?;
    device::report(global, &device);
    Ok(left)
}

/// A chat under way.
struct Chat<'a> {
    global: &'a Global,
    tokenizer: &'a Tokenizer,
    loaded: &'a Loaded,
    dialogue: Dialogue<'a>,
    settings: SamplerOptions,
    max_tokens: Option<usize>,
    /// The last answer.
    last: Option<Answer>,
}

impl Chat<'_> {
    /// Takes lines until there are no more.
    fn talk(&mut self, mut lines: Lines) -> anyhow::Result<ExitCode> {
        if lines.interactive() {
            self.note("type a message; /help lists commands, Ctrl-D leaves");
        }
        loop {
            let done = match lines.next()? {
                Line::End => return Ok(ExitCode::SUCCESS),
                Line::Blank => continue,
                Line::Text(text) => self.turn(&text),
            };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ExitCode::SUCCESS),
                // People can mend it and go on; a script must notice.
                Err(error) if lines.interactive() && !error.is::<output::Closed>() => {
                    output::complain(&format!("error: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Does what a line says.
    fn turn(&mut self, line: &str) -> anyhow::Result<ControlFlow<()>> {
        match Command::parse(line).map_err(anyhow::Error::msg)? {
            None => {
                self.dialogue.say(line);
                self.answer()?;
            }
            Some(Command::Exit) => return Ok(ControlFlow::Break(())),
            Some(Command::Help) => self.tell(HELP),
            Some(Command::Clear) => {
                self.dialogue.clear();
                self.note("the conversation begins anew");
            }
            Some(Command::System(None)) => match self.dialogue.system() {
                Some(text) => self.tell(&format!("the system message is: {text}")),
                None => self.tell("there is no system message"),
            },
            Some(Command::System(Some(text))) => {
                self.dialogue.set_system(&text);
                self.note("the system message holds from the next answer on");
            }
            Some(Command::Regenerate) => {
                self.dialogue.take_back_answer()?;
                // The same random numbers would give the same answer.
                self.settings.seed = self.settings.seed.wrapping_add(1);
                self.answer()?;
            }
            Some(Command::Stats) => self.tell(&self.stats()),
            Some(Command::Save(path)) => {
                file::save(&path, self.dialogue.conversation())?;
                let state = file::state_path(&path);
                self.dialogue.keep(&state)?;
                let count = self.dialogue.conversation().messages.len();
                let (path, state) = (path.display(), state.display());
                self.note(&format!(
                    "saved {count} messages to {path}, and what the model computed to {state}"
                ));
            }
            Some(Command::Load(path)) => {
                let conversation = file::load(&path)?;
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
        if let Some(Err(error)) = state.exists().then(|| self.dialogue.restore(&state)) {
            self.note(&format!("the conversation will be computed again: {error}"));
        }
    }

    /// Lets the model answer, and writes its text as it comes.
    fn answer(&mut self) -> anyhow::Result<()> {
        let options = GenerateOptions {
            max_tokens: self.max_tokens,
            sampler: Sampler::new(self.settings.clone())?,
            stop_ids: self.tokenizer.eos_ids().to_vec(),
            stop_strings: Vec::new(),
            tokenizer: self.tokenizer,
        };
        let deferred = interrupt::defer()?;
        let mut failure = None;
        let mut on_text = |text: &str, _: u32| {
            if !text.is_empty() {
                failure = output::print_text(text).err();
            }
            match failure.is_some() || interrupt::requested() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let answer = self.dialogue.answer(&options, &mut on_text)?;
        drop(deferred);
        if let Some(error) = failure {
            return Err(error);
        }
        if !answer.generation.text.ends_with('\n') {
            output::print("\n")?;
        }
        match answer.generation.finish {
            Finish::Context => self.note("the context is full: /clear begins anew, --ctx makes it longer"),
            Finish::Interrupted => self.note("stopped"),
            Finish::Length => self.note("stopped after as many tokens as -n allows"),
            Finish::Stop | Finish::StopString => {}
        }
        self.last = Some(answer);
        if self.global.verbose {
            self.tell(&self.stats());
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
            self.settings.seed,
        )];
        if let Some(Answer { generation, kept }) = &self.last {
            let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), human_rate);
            lines.push(format!(
                "last answer: {} tokens kept, {} new in the prompt ({} tokens/s), first token after {}; {} tokens ({} \
                 tokens/s); end: {}",
                kept,
                generation.prompt_tokens,
                rate(generation.prompt_rate()),
                human_seconds(generation.time_to_first.as_secs_f64()),
                generation.ids.len(),
                rate(generation.decode_rate()),
                generation.finish.name(),
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
            output::complain(&format!("({text})"));
        }
    }
}
