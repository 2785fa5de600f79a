//! What is asked of an engine, and what it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refrain_lm::Likelihoods;

use super::recovery::guarded;
use crate::step::StepExtras;
use crate::{Error, Finish, GenerateOptions};

/// Tokens to go on from. Strings that end a text are the caller's to look for: an engine knows tokens alone.
pub struct EngineRequest {
    /// The prompt, one token at least.
    pub prompt: Vec<u32>,
    /// How to go on.
    pub options: GenerateOptions,
    /// Of how many of the likeliest tokens it is told how likely they were at each place, up to
    /// [`MOST_LIKELIEST`](crate::MOST_LIKELIEST); `None`: of none, not even of those that were picked. Texts that are
    /// decoded together with such a one take a little longer.
    pub likeliest: Option<usize>,
    /// Which tokens may come, if not all. Texts that are decoded together with such a one go on token by token: none of
    /// them is computed ahead.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// Whether the prompt's embedding is asked for, and no text: the model's hidden state behind its last token.
    pub embeds: bool,
    /// Who asks, by any number: where requests wait, clients take turns.
    pub client: u64,
}

impl EngineRequest {
    /// The prompt and how to go on, nothing else.
    pub fn new(prompt: Vec<u32>, options: GenerateOptions) -> EngineRequest {
        EngineRequest {
            prompt,
            options,
            likeliest: None,
            constraint: None,
            embeds: false,
            client: 0,
        }
    }

    /// A request for a text's embedding.
    pub fn embedding(text: Vec<u32>) -> EngineRequest {
        EngineRequest {
            embeds: true,
            ..EngineRequest::new(text, GenerateOptions::default())
        }
    }
}

/// Which tokens may come next in a text: what a grammar leaves. It is asked on the engine's thread, and all wait for it.
pub trait TokenConstraint: Send {
    /// Sets in `bits`, which are zeros, those of the tokens that may come next: token 0 is the lowest bit of the first word.
    ///
    /// # Errors
    /// Why the text cannot go on.
    fn allow(&mut self, bits: &mut [u32]) -> Result<(), String>;

    /// Goes on behind a token that was allowed; whether the text is over with it.
    ///
    /// # Errors
    /// Why the text cannot go on.
    fn take(&mut self, token: u32) -> Result<bool, String>;
}

/// A token of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct PickedToken {
    /// Its number.
    pub id: u32,
    /// How likely it and others were, if that was asked for: by the model's own logits, whatever was done to them then.
    pub likelihoods: Option<Box<Likelihoods>>,
}

/// What an engine says of a request, in this order: tokens, if it asks for a text, then one of the others.
#[derive(Debug)]
pub enum EngineEvent {
    /// The next token.
    Token(PickedToken),
    /// The text ended.
    End(Finish),
    /// What was asked for instead of a text: f32 `[hidden]`, behind the last norm, of the prompt's last token, as the
    /// model has it: its length is not 1.
    Embedding(Vec<f32>),
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
    pub likeliest: Option<usize>,
    pub constraint: Option<Box<dyn TokenConstraint>>,
    pub embeds: bool,
    pub client: u64,
    pub listener: EngineListener,
    pub cancelled: Arc<AtomicBool>,
    pub _leaving: super::Leaving,
}

impl Waiting {
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Tells its listener, who hears no more if that panics.
    pub fn tell(&mut self, event: EngineEvent) {
        if guarded(|| (self.listener)(event)).is_err() {
            self.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// What its steps have to do.
    pub fn extras(&self) -> StepExtras {
        StepExtras {
            likelihoods: self.likeliest.is_some(),
            allowed: self.constraint.is_some(),
        }
    }
}

/// What a constraint says; if it panics, its text alone cannot go on.
pub(super) fn asked<T>(constraint: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    guarded(constraint).unwrap_or_else(|bug| Err(bug.to_string()))
}
