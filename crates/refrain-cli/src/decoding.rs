//! Command-line options for decoding.

use clap::{Args, ValueEnum};
use refrain::Executor;
use refrain_engine::{EngineOptions, Mode, ModeCache, ModeChoice, Model};

use crate::host;

/// How the decode step is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// Replay, unless eager was measured to be clearly faster on this device; `bench` measures, and keeps the result
    Auto,
    /// Record and submit commands for each token
    Eager,
    /// Record commands once and replay them
    Replay,
}

/// Options of commands that generate tokens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Decoding")]
pub(crate) struct DecodingArguments {
    /// How decode steps are executed
    #[arg(long, value_enum, default_value_t = ModeArgument::Auto, value_name = "MODE")]
    pub mode: ModeArgument,
    /// Tokens decoded per GPU submission, 1 to 64 [default: as many as fit in 10 ms, up to 32]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub tokens_per_submit: Option<u32>,
}

impl DecodingArguments {
    /// Applies the options to those of an engine, which measures no mode itself.
    pub fn apply_to(&self, options: &mut EngineOptions, model: &Model) {
        options.mode = Mode::Fixed(self.executor(model).0);
        options.tokens_per_submit = self.tokens_per_submit.map(|tokens| tokens as usize);
    }

    /// Returns what decodes the tokens of a model, and the measurement that chose it, if one did.
    pub fn executor(&self, model: &Model) -> (&'static dyn Executor, Option<ModeChoice>) {
        let executors = model.device().executors();
        let choice = match self.asked_mode(model) {
            Mode::Fixed(executor) => return (executor, None),
            Mode::Auto => mode_cache().and_then(|cache| cache.choice(model)),
        };
        let executor = choice
            .as_ref()
            .map_or(executors[0], |choice| choice.executor(executors));
        (executor, choice)
    }

    /// Returns the mode that is asked for.
    pub fn asked_mode(&self, model: &Model) -> Mode {
        let name = match self.mode {
            ModeArgument::Auto => None,
            ModeArgument::Eager => Some("eager"),
            ModeArgument::Replay => Some("replay"),
        };
        // The CPU executor has no other modes.
        let executor = name.and_then(|name| model.device().executor(name));
        executor.map_or(Mode::Auto, Mode::Fixed)
    }
}

/// The modes that were measured, unless there is no directory for them.
pub(crate) fn mode_cache() -> Option<ModeCache> {
    host::cache_dir().map(|directory| ModeCache::new(&directory))
}
