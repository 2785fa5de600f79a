//! What is asked of an engine, and what it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Finish, GenerateOptions};

/// Tokens to go on from. Strings that end a text are the caller's to look for: an engine knows tokens alone.
pub struct EngineRequest {
    /// The prompt, one token at least.
    pub prompt: Vec<u32>,
    /// How to go on.
    pub options: GenerateOptions,
}

/// What an engine says of a request, in this order: tokens, then one of the others.
#[derive(Debug)]
pub enum EngineEvent {
    /// The next token.
    Token(u32),
    /// The text ended.
    End(Finish),
    /// It cannot go on.
    Failed(Error),
}

/// Who listens to an engine. It is called on the engine's thread, so it must not wait.
pub type EngineListener = Box<dyn FnMut(EngineEvent) + Send>;

/// Dropping it ends a request within one submit, if it is not over yet; its listener then hears nothing more.
#[derive(Debug)]
pub struct EngineTicket(pub(super) Arc<AtomicBool>);

impl Drop for EngineTicket {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request that waits for its turn, or has it.
pub(super) struct Waiting {
    pub number: u64,
    /// The prompt, and the tokens that were picked before it had to make room.
    pub tokens: Vec<u32>,
    /// Of all of its tokens, with which it ends.
    pub limit: usize,
    /// Why it ends there.
    pub at_limit: Finish,
    pub options: GenerateOptions,
    pub settings: refrain_lm::sample::Settings,
    pub listener: EngineListener,
    pub cancelled: Arc<AtomicBool>,
    pub _leaving: super::Leaving,
}

impl Waiting {
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
