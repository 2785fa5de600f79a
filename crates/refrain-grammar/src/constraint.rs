//! A grammar on its way through one text.

use llguidance::Matcher;
use refrain_engine::TokenConstraint;

/// The tokens between which a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningTokens {
    /// Begins reasoning; `None` if the text does not begin with any, or is within already.
    pub open: Option<u32>,
    /// Ends it.
    pub close: u32,
    /// Whether the text begins within reasoning.
    pub is_open: bool,
}

/// What a grammar allows in one text. Reasoning before it is free.
#[derive(Clone)]
pub struct GrammarConstraint {
    matcher: Matcher,
    reasoning: Option<ReasoningTokens>,
    stage: AnswerStage,
    end_ids: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq)]
enum AnswerStage {
    /// Reasoning may begin, or the answer.
    Beginning,
    Reasoning,
    Answer,
}

impl GrammarConstraint {
    pub(crate) fn new(matcher: Matcher, reasoning: Option<ReasoningTokens>, end_ids: Vec<u32>) -> GrammarConstraint {
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
        }
    }

    /// The same for another text, from its beginning.
    pub fn for_another(&self) -> GrammarConstraint {
        GrammarConstraint {
            matcher: self.matcher.deep_clone(),
            ..self.clone()
        }
    }
}

impl TokenConstraint for GrammarConstraint {
    fn allow(&mut self, bits: &mut [u32]) -> Result<(), String> {
        if self.stage == AnswerStage::Reasoning {
            bits.fill(u32::MAX);
            self.end_ids.iter().for_each(|id| set(bits, *id, false));
            return Ok(());
        }
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| error.to_string())?;
        let words = allowed.as_slice();
        let shared = words.len().min(bits.len());
        bits[..shared].copy_from_slice(&words[..shared]);
        let open = self.reasoning.and_then(|tokens| tokens.open);
        if let Some(open) = open.filter(|_| self.stage == AnswerStage::Beginning) {
            set(bits, open, true);
        }
        Ok(())
    }

    fn take(&mut self, token: u32) -> Result<bool, String> {
        match (self.stage, self.reasoning) {
            (AnswerStage::Beginning, Some(tokens)) if tokens.open == Some(token) => self.stage = AnswerStage::Reasoning,
            (AnswerStage::Reasoning, Some(tokens)) if tokens.close == token => self.stage = AnswerStage::Answer,
            (AnswerStage::Reasoning, _) => {}
            _ => {
                self.stage = AnswerStage::Answer;
                self.matcher.consume_token(token).map_err(|error| error.to_string())?;
                return Ok(self.matcher.is_stopped());
            }
        }
        Ok(false)
    }
}

fn set(bits: &mut [u32], token: u32, allowed: bool) {
    if let Some(word) = bits.get_mut(token as usize / 32) {
        let bit = 1 << (token % 32);
        *word = if allowed { *word | bit } else { *word & !bit };
    }
}
