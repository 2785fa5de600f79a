//! A grammar applied to one sequence.

use std::sync::Arc;

use llguidance::Matcher;
use refrain_engine::TokenConstraint;

use crate::GrammarError;
use crate::cancellation::Deadline;
use crate::limits::MASK_TIMEOUT;
use crate::schema::IgnoredKeyword;

/// The tokens that delimit a model's reasoning before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningTokens {
    /// Begins the reasoning; `None` if the text has none, or is already inside it.
    pub open: Option<u32>,
    /// Ends the reasoning.
    pub close: u32,
    /// Whether the text begins inside the reasoning.
    pub is_open: bool,
}

/// Restricts the tokens of one sequence to a grammar. Reasoning before the answer is unrestricted.
#[derive(Clone)]
pub struct GrammarConstraint {
    matcher: Matcher,
    reasoning: Option<ReasoningTokens>,
    stage: AnswerStage,
    end_ids: Vec<u32>,
    ignored: Arc<[IgnoredKeyword]>,
}

#[derive(Clone, Copy, PartialEq)]
enum AnswerStage {
    /// Either reasoning or the answer may begin.
    Beginning,
    Reasoning,
    Answer,
}

impl GrammarConstraint {
    pub(crate) fn new(
        matcher: Matcher,
        reasoning: Option<ReasoningTokens>,
        end_ids: Vec<u32>,
        ignored: Vec<IgnoredKeyword>,
    ) -> GrammarConstraint {
        let stage = match reasoning {
            Some(tokens) if tokens.is_open => AnswerStage::Reasoning,
            Some(_) => AnswerStage::Beginning,
            None => AnswerStage::Answer,
        };
        GrammarConstraint {
            matcher,
            reasoning,
            stage,
            end_ids,
            ignored: ignored.into(),
        }
    }

    /// The keywords of the schemas that are not enforced.
    pub fn ignored(&self) -> &[IgnoredKeyword] {
        &self.ignored
    }

    /// Returns an independent copy for another sequence. Call it before any token is accepted.
    pub fn fork(&self) -> GrammarConstraint {
        GrammarConstraint {
            matcher: self.matcher.deep_clone(),
            ..self.clone()
        }
    }

    /// Starts the time limit of one operation of the matcher.
    fn deadline(&self) -> Option<Deadline> {
        self.matcher
            .cancellation_handle()
            .and_then(|handle| Deadline::start(handle, MASK_TIMEOUT))
    }
}

impl TokenConstraint for GrammarConstraint {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        if self.stage == AnswerStage::Reasoning {
            bits.fill(u32::MAX);
            self.end_ids.iter().for_each(|id| set(bits, *id, false));
            return Ok(());
        }
        let deadline = self.deadline();
        let allowed = self.matcher.compute_mask_or_eos();
        drop(deadline);
        let allowed = allowed.map_err(message)?;
        let words = allowed.as_slice();
        let shared = words.len().min(bits.len());
        bits[..shared].copy_from_slice(&words[..shared]);
        let open = self.reasoning.and_then(|tokens| tokens.open);
        if let Some(open) = open.filter(|_| self.stage == AnswerStage::Beginning) {
            set(bits, open, true);
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        match (self.stage, self.reasoning) {
            (AnswerStage::Beginning, Some(tokens)) if tokens.open == Some(token) => self.stage = AnswerStage::Reasoning,
            (AnswerStage::Reasoning, Some(tokens)) if tokens.close == token => self.stage = AnswerStage::Answer,
            (AnswerStage::Reasoning, _) => {}
            _ => {
                self.stage = AnswerStage::Answer;
                let _deadline = self.deadline();
                self.matcher.consume_token(token).map_err(message)?;
                return Ok(self.matcher.is_stopped());
            }
        }
        Ok(false)
    }
}

fn message(error: impl std::fmt::Display) -> String {
    GrammarError::of(error).to_string()
}

fn set(bits: &mut [u32], token: u32, allowed: bool) {
    if let Some(word) = bits.get_mut(token as usize / 32) {
        let bit = 1 << (token % 32);
        *word = if allowed { *word | bit } else { *word & !bit };
    }
}
