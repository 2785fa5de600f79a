//! Requests to an engine, and the events that it reports.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use refrain_lm::Logprobs;

use super::constraint::Constraint;
use super::prefix_store::StoredPrefix;
use super::recovery::guarded;
use crate::step::StepExtras;
use crate::{Error, Finish, GenerateOptions};

/// A request to an engine. The engine handles only token ids; stop strings are up to the caller.
pub struct EngineRequest {
    /// The prompt; at least one token.
    pub prompt: Vec<u32>,
    /// Number of the prompt's last tokens that count as generated, for penalties of generated tokens.
    pub generated_tokens: usize,
    /// Sampling options and limits.
    pub options: GenerateOptions,
    /// Number of most likely tokens whose log-probabilities are returned at each position, up to
    /// [`MAX_TOP_LOGPROBS`](crate::MAX_TOP_LOGPROBS). `None` returns none at all, not even those of the sampled
    /// tokens. Requests in the same batch become slightly slower.
    pub top_logprobs: Option<usize>,
    /// Restricts the tokens, as a grammar does. Requests in the same batch are then decoded one token a submit.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// What is reported of the prompt's tokens before the text. With [`GenerateOptions::max_tokens`] of 0 no text follows.
    pub prompt_outputs: Option<PromptOutputs>,
    /// Whether the prompt's embedding is requested instead of text: the model's hidden state after the last token.
    pub embeds: bool,
    /// Identifies the client. Clients share the engine fairly while requests wait.
    pub client: u64,
    /// Receives the number of prompt tokens that were found in the prefix cache, once the request is admitted.
    pub cached_tokens: Arc<AtomicUsize>,
}

impl EngineRequest {
    /// A request for text.
    pub fn new(prompt: Vec<u32>, options: GenerateOptions) -> EngineRequest {
        EngineRequest {
            prompt,
            generated_tokens: 0,
            options,
            top_logprobs: None,
            constraint: None,
            prompt_outputs: None,
            embeds: false,
            client: 0,
            cached_tokens: Arc::default(),
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

/// What is reported of a prompt's tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PromptOutputs {
    /// The tokens after index `from` as [`EngineEvent::Token`], with the log-probabilities of
    /// [`EngineRequest::top_logprobs`].
    Logprobs {
        /// The first token after which they are computed.
        from: usize,
    },
    /// The logits after each token from index `from` on, in [`EngineEvent::Logits`]. Those after the last token are among
    /// them only if no text follows.
    Logits {
        /// The first token after which they are computed.
        from: usize,
    },
}

impl PromptOutputs {
    /// Returns the indices of the tokens after which outputs are computed.
    pub(super) fn tokens(self, prompt: usize, has_text: bool) -> Range<usize> {
        match self {
            PromptOutputs::Logits { from } => from..prompt - usize::from(has_text),
            // None follows the last.
            PromptOutputs::Logprobs { from } => from..prompt - 1,
        }
    }
}

/// Restricts the next token of a sequence, as a grammar does. Masks are filled on threads of their own while the device
/// runs the model; tokens are accepted on the engine's thread, where slow calls delay the whole batch.
pub trait TokenConstraint: Send {
    /// Whether the next token is restricted at all. While no request of a batch is, the engine runs ahead; tokens that
    /// were sampled before [`accept`](Self::accept) made this true are dropped and sampled again.
    fn restricts(&self) -> bool {
        true
    }

    /// Sets the bits of the allowed next tokens in `bits`, which are zero; token 0 is the lowest bit of the first
    /// word.
    ///
    /// # Errors
    /// Why the text cannot continue.
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String>;

    /// Accepts a token. Returns whether the text is complete.
    ///
    /// # Errors
    /// Why the text cannot continue.
    fn accept(&mut self, token: u32) -> Result<bool, String>;
}

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct PickedToken {
    /// Its id.
    pub id: u32,
    /// Log-probabilities of it and of the most likely tokens, if requested. They come from the model's raw logits,
    /// before sampling settings apply.
    pub logprobs: Option<Box<Logprobs>>,
}

/// An event of a request: what it asks for of its prompt, then tokens, if it asks for text, then exactly one of the others.
#[derive(Debug)]
pub enum EngineEvent {
    /// The next token.
    Token(PickedToken),
    /// Logits after the next tokens of the prompt, f32 `[N, vocabulary]`.
    Logits(Vec<f32>),
    /// The text ended.
    End(Finish),
    /// The embedding: f32 `[hidden]` of the prompt's last token after the last norm, not normalised to length 1.
    Embedding(Vec<f32>),
    /// The request failed.
    Failed(Error),
}

/// Receives the events of a request. It is called on the engine's thread and must not block.
pub type EngineListener = Box<dyn FnMut(EngineEvent) + Send>;

/// Handle of a request. Dropping it cancels the request within one submit; its listener then receives no further
/// events.
#[derive(Debug)]
pub struct EngineTicket(pub(super) Arc<AtomicBool>);

impl Drop for EngineTicket {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A submitted request.
pub(super) struct Waiting {
    pub number: u64,
    /// The prompt, and the tokens generated so far.
    pub tokens: Vec<u32>,
    /// Number of tokens, prompt included, at which it ends.
    pub limit: usize,
    /// Why it ends there.
    pub at_limit: Finish,
    pub options: GenerateOptions,
    pub settings: refrain_lm::sample::Settings,
    pub top_logprobs: Option<usize>,
    pub constraint: Option<Constraint>,
    /// The tokens of its prompt whose outputs are still to be reported.
    pub prompt_outputs: Option<(PromptOutputs, Range<usize>)>,
    pub embeds: bool,
    pub client: u64,
    /// Receives the number of cached tokens when the request is admitted for the first time.
    pub cached_tokens: Option<Arc<AtomicUsize>>,
    /// The running request that computes a prefix for it, and how many of that request's tokens it waits for.
    pub awaited: Option<(u64, usize)>,
    /// What is known of its prefix on disk.
    pub stored: StoredPrefix,
    pub listener: EngineListener,
    pub cancelled: Arc<AtomicBool>,
    pub _leaving: super::Leaving,
}

impl Waiting {
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Reports an event. If the listener panics, the request is cancelled.
    pub fn emit(&mut self, event: EngineEvent) {
        if guarded(|| (self.listener)(event)).is_err() {
            self.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Returns how many of its tokens may be found computed: no outputs of them are needed.
    pub fn reusable(&self) -> usize {
        match &self.prompt_outputs {
            Some((_, tokens)) => tokens.start,
            None => self.tokens.len() - 1,
        }
    }

    /// Returns the optional parts that its steps need.
    pub fn extras(&self) -> StepExtras {
        StepExtras {
            logprobs: self.top_logprobs.is_some(),
            allowed: self.constraint.as_ref().is_some_and(Constraint::restricts),
            draft_tokens: 0,
        }
    }
}
