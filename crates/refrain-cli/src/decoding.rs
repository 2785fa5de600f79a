//! How tokens are decoded, as the command line says.

use clap::{Args, ValueEnum};
use refrain_engine::{Mode, ModeCache, Session};

use crate::host;

/// Executors of the decode step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// Replay, unless eager is clearly faster here, measured on the first tokens and remembered
    Auto,
    /// Commands are translated and submitted for each token
    Eager,
    /// Commands are recorded once and replayed
    Replay,
}

/// Options of commands that decode.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Decoding")]
pub(crate) struct DecodingArguments {
    /// Executor of the decode step
    #[arg(long, value_enum, default_value_t = ModeArgument::Auto, value_name = "MODE")]
    pub mode: ModeArgument,
    /// Tokens that one submit decodes, 1 to 64 [default: as many as fit in 50 ms, 32 at most]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub tokens_per_submit: Option<u32>,
}

impl DecodingArguments {
    /// Sets a session up accordingly.
    pub fn apply(&self, session: &mut Session) {
        let name = match self.mode {
            ModeArgument::Auto => None,
            ModeArgument::Eager => Some("eager"),
            ModeArgument::Replay => Some("replay"),
        };
        // The CPU executor is the only one where it is.
        let executor = name.and_then(|name| session.model().device().executor(name));
        let mode = executor.map_or(Mode::Auto, Mode::By);
        let cache = host::cache_dir().map(|directory| ModeCache::new(&directory));
        session.set_mode(mode, cache);
        session.set_tokens_per_submit(self.tokens_per_submit.map(|tokens| tokens as usize));
    }
}
