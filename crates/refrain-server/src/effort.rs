//! Levels of reasoning that not every chat template knows.

use std::sync::Arc;

use refrain_text::{Conversation, ReasoningOptions};

use crate::answer::AnswerFormat;
use crate::error::Refusal;
use crate::prefill::Prefill;
use crate::served::ServedModel;

impl ServedModel {
    /// As [`ServedModel::render_prefilled`], but leaves out an effort that the template refuses: agents send one with
    /// every request, whatever the model is.
    ///
    /// # Errors
    /// As [`ServedModel::render_prefilled`].
    pub(crate) async fn render_with_effort(
        self: &Arc<Self>,
        conversation: Conversation,
        reasoning: ReasoningOptions,
        prefill: Option<Prefill>,
    ) -> Result<(Vec<u32>, AnswerFormat), Refusal> {
        if reasoning.effort.is_none() {
            return self.render_prefilled(conversation, reasoning, prefill).await;
        }
        let without_effort = ReasoningOptions {
            effort: None,
            ..reasoning.clone()
        };
        let rendered = self
            .render_prefilled(conversation.clone(), reasoning, prefill.clone())
            .await;
        match rendered {
            Err(Refusal::Text(_)) => self.render_prefilled(conversation, without_effort, prefill).await,
            rendered => rendered,
        }
    }
}
