//! A grammar applied to one sequence.

use std::sync::Arc;

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use refrain_engine::TokenConstraint;

use crate::GrammarError;
use crate::call_watch::CallWatch;
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

/// Restricts the tokens of one sequence to a grammar. Reasoning before the answer is unrestricted, and so is text
/// around the calls of a [`Grammar::Calls`](crate::Grammar::Calls).
#[derive(Clone)]
pub struct GrammarConstraint {
    matcher: Matcher,
    reasoning: Option<ReasoningTokens>,
    stage: AnswerStage,
    end_ids: Vec<u32>,
    ignored: Arc<[IgnoredKeyword]>,
    /// Watches free text, if the grammar is that of calls in it.
    watch: Option<CallWatch>,
}

#[derive(Clone, Copy, PartialEq)]
enum AnswerStage {
    /// Either reasoning or the answer may begin.
    Beginning,
    Reasoning,
    /// Text in which a call may begin.
    Free,
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
            watch: None,
        }
    }

    /// The same for free text, in which the grammar holds from where a call begins to where it ends.
    pub(crate) fn watching(self, watch: CallWatch) -> GrammarConstraint {
        GrammarConstraint {
            watch: Some(watch),
            stage: AnswerStage::Free,
            ..self
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

impl GrammarConstraint {
    /// Takes a token of free text. The grammar holds from a call's beginning on, unless the call began in a way that
    /// the grammar does not know.
    fn accept_free(&mut self, token: u32) -> bool {
        let Some(call) = self.watch.as_mut().and_then(|watch| watch.push(token)) else {
            return false;
        };
        let _deadline = self.deadline();
        let is_begun = self.matcher.reset().is_ok()
            && self
                .matcher
                .try_consume_tokens(&call)
                .is_ok_and(|taken| taken == call.len());
        if is_begun {
            self.stage = AnswerStage::Answer;
        }
        is_begun && self.end_call()
    }

    /// Goes back to free text if a call has ended. Returns whether the answer ends with it.
    fn end_call(&mut self) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        let has_ended = self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(true);
        if has_ended {
            watch.restart();
            self.stage = AnswerStage::Free;
        }
        has_ended && !watch.several()
    }

    /// The tokens that the grammar allows.
    fn allowed(&mut self) -> Result<SimpleVob, String> {
        let deadline = self.deadline();
        let allowed = self.matcher.compute_mask_or_eos();
        drop(deadline);
        allowed.map_err(message)
    }
}

impl TokenConstraint for GrammarConstraint {
    fn restricts(&self) -> bool {
        self.stage != AnswerStage::Free
    }

    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        if self.stage == AnswerStage::Free {
            bits.fill(u32::MAX);
            return Ok(());
        }
        if self.stage == AnswerStage::Reasoning {
            bits.fill(u32::MAX);
            self.end_ids.iter().for_each(|id| set(bits, *id, false));
            return Ok(());
        }
        let allowed = match self.allowed() {
            Ok(allowed) => allowed,
            Err(why) if self.watch.is_none() => return Err(why),
            // A call that its grammar cannot follow is free text.
            Err(_) => {
                self.stage = AnswerStage::Free;
                bits.fill(u32::MAX);
                return Ok(());
            }
        };
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
        if self.stage == AnswerStage::Free {
            return Ok(self.accept_free(token));
        }
        if self.watch.is_some() {
            let _deadline = self.deadline();
            if self.matcher.consume_token(token).is_err() {
                self.stage = AnswerStage::Free;
                return Ok(false);
            }
            return Ok(self.end_call());
        }
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

/// Allows or forbids a token in a mask.
pub(crate) fn set(bits: &mut [u32], token: u32, allowed: bool) {
    if let Some(word) = bits.get_mut(token as usize / 32) {
        let bit = 1 << (token % 32);
        *word = if allowed { *word | bit } else { *word & !bit };
    }
}
