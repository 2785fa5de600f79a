//! Answers of one request that wait to be submitted, so that they do not fill the engine's queue.

use std::sync::Arc;
use std::time::Duration;

use refrain_engine::EngineRequest;

use crate::answer::{Answer, AnswerFormat};
use crate::error::Refusal;
use crate::lease::EngineLease;
use crate::served::ServedModel;

/// How often a full queue is looked at again.
const RETRY: Duration = Duration::from_millis(50);

/// A request that was not submitted yet.
pub(super) struct PendingAnswer {
    pub model: Arc<ServedModel>,
    pub engine: Arc<EngineLease>,
    pub request: EngineRequest,
    pub format: AnswerFormat,
}

impl PendingAnswer {
    /// Submits it at once.
    ///
    /// # Errors
    /// If the engine refuses it, or its queue is full.
    pub fn submit(self) -> Result<Answer, Refusal> {
        self.model.ask(&self.engine, self.request, self.format)
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

/// Returns how many answers of one request may be submitted at once: enough to fill all streams.
pub(super) fn limit(answers: &[PendingAnswer]) -> usize {
    answers.first().map_or(1, |answer| {
        let options = answer.engine.options();
        let streams = options.streams.max(1);
        (2 * streams).min(streams + options.queue)
    })
}
