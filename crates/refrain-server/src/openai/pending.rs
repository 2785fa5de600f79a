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
        let options = *self.engine.options();
        loop {
            let load = self.engine.load();
            if self.engine.has_failed() || load.waiting + load.running < options.streams + options.queue {
                return self.submit();
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Returns how many answers of one request may be submitted at once: enough to fill all streams.
pub(super) fn limit(answers: &[PendingAnswer]) -> usize {
    answers
        .first()
        .map_or(1, |answer| 2 * answer.engine.options().streams.max(1))
}
