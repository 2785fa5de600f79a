//! What an engine tells of itself.

use super::MAX_DRAFTS;

/// Counters and gauges of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineLoad {
    /// Requests that wait for a slot.
    pub waiting: usize,
    /// Requests that are being computed.
    pub running: usize,
    /// Pages of the KV cache.
    pub pages: usize,
    /// Pages held by requests.
    pub pages_in_use: usize,
    /// Programs that requests may need and that are not made yet. They are made while there are no requests.
    pub programs_to_make: usize,
    /// Total prompt tokens.
    pub prompt_tokens: u64,
    /// Total prompt tokens that were found in the prefix cache.
    pub cached_tokens: u64,
    /// Total generated tokens.
    pub generated_tokens: u64,
    /// Total tokens of prompts whose logits or log-probabilities were reported.
    pub reported_tokens: u64,
    /// Total decode steps that produced a token for at least one request. Each reads the weights once.
    pub decode_steps: u64,
    /// Total decode steps that computed tokens of prompts, too.
    pub mixed_steps: u64,
    /// Total preemptions: a request lost its slot because pages or memory ran out, and its tokens are recomputed.
    pub preemptions: u64,
    /// Times that the model was reloaded after its device failed.
    pub restarts: u64,
    /// Total drafts of texts: each is one or more tokens that a step verified.
    pub drafts: u64,
    /// Total tokens of drafts.
    pub draft_tokens: u64,
    /// Total accepted tokens of drafts, by their index in the draft.
    pub accepted_tokens: [u64; MAX_DRAFTS],
}

impl EngineLoad {
    /// Returns a count that grows whenever a request gets what it asked for.
    pub(super) fn progress(&self) -> u64 {
        self.generated_tokens + self.reported_tokens
    }
}
