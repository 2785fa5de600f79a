//! Command-line options for decoding.

use clap::{Args, ValueEnum};
use refrain_engine::{Mode, ModeCache, Session};

use crate::host;

/// How the decode step is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// Replay, unless eager measures clearly faster on this device; the choice is cached
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
    /// Tokens decoded per GPU submission, 1 to 64 [default: as many as fit in 50 ms, up to 32]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub tokens_per_submit: Option<u32>,
}

impl DecodingArguments {
    /// Applies the options to a session.
    pub fn apply(&self, session: &mut Session) {
        let name = match self.mode {
            ModeArgument::Auto => None,
            ModeArgument::Eager => Some("eager"),
            ModeArgument::Replay => Some("replay"),
        };
        // The CPU executor has no other modes.
        let executor = name.and_then(|name| session.model().device().executor(name));
        let mode = executor.map_or(Mode::Auto, Mode::Fixed);
        let cache = host::cache_dir().map(|directory| ModeCache::new(&directory));
        session.set_mode(mode, cache);
        session.set_tokens_per_submit(self.tokens_per_submit.map(|tokens| tokens as usize));
    }
}
