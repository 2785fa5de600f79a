//! Answers of one request that wait to be submitted, so that they do not fill the engine's queue.

use std::sync::Arc;
use std::time::Duration;

use refrain_engine::EngineRequest;

use crate::answer::{Answer, AnswerFormat};
use crate::error::Refusal;
use crate::lease::EngineLease;
use crate::served::ServedModel;

/// Limit of the answers of one request: its prompts, times the answers to each.
const MAX_ANSWERS: usize = 4096;
/// How often a full queue is looked at again.
const RETRY: Duration = Duration::from_millis(50);

/// A request that was not submitted yet.
pub(super) struct PendingAnswer {
    pub model: Arc<ServedModel>,
    pub engine: Arc<EngineLease>,
    /// Makes the request once it is submitted: a grammar of its own may take much memory.
    pub request: Box<dyn FnOnce() -> EngineRequest + Send>,
    pub format: AnswerFormat,
}

impl PendingAnswer {
    /// Submits it at once.
    ///
    /// # Errors
    /// If the engine refuses it, or its queue is full.
    pub fn submit(self) -> Result<Answer, Refusal> {
        self.model.ask(&self.engine, (self.request)(), self.format)
    }

    /// Submits it as soon as the engine's queue has room.
    ///
    /// # Errors
    /// If the engine refuses it.
    pub async fn submit_when_possible(self) -> Result<Answer, Refusal> {
        while !self.engine.has_failed() && !self.engine.has_room() {
            tokio::time::sleep(RETRY).await;
        }
        self.submit()
    }
}

/// Refuses a request with too many answers.
///
/// # Errors
/// If there are more than [`MAX_ANSWERS`].
pub(super) fn check_count(prompts: usize, each: usize) -> Result<(), Refusal> {
    match prompts.saturating_mul(each) {
        0..=MAX_ANSWERS => Ok(()),
        count => {
            let why = format!("{count} answers are more than the limit of {MAX_ANSWERS} in one request");
            Err(Refusal::field("prompt", why))
        }
    }
}

/// Returns how many answers of one request may be submitted at once: enough to fill all streams.
pub(super) fn limit(answers: &[PendingAnswer]) -> usize {
    answers.first().map_or(1, |answer| {
        let options = answer.engine.options();
        let streams = options.streams.max(1);
        (2 * streams).min(streams + options.queue)
    })
}
