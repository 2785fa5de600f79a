//! Limits the tokens of reasoning.

use std::sync::Arc;

use llguidance::toktrie::TokEnv;
use refrain_engine::TokenConstraint;
use refrain_text::Tokenizer;
use refrain_text::dialects::{AnswerReader, Dialect};

use crate::constraint::set;
use crate::token_text::TokenText;

/// Tokens that a character may need beyond the limit.
const MAX_OVERRUN: usize = 4;

/// Ends reasoning after a number of tokens: then the dialect's closing mark is forced, and the answer goes on.
#[derive(Clone)]
pub struct ReasoningBudget {
    limit: usize,
    /// Tokens of reasoning so far.
    used: usize,
    reader: AnswerReader,
    text: TokenText,
    /// The tokens that end the reasoning.
    closing: Arc<[u32]>,
    /// What would begin more reasoning right behind them.
    forbidden: Option<u32>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is forced.
    Free,
    /// The closing tokens from this one on are forced.
    Closing(usize),
    /// They stand before the next token.
    Closed,
}

/// Whose reasoning is limited.
#[derive(Debug, Clone, Copy)]
pub struct ReasoningSource<'a> {
    /// How the model writes reasoning, without calls where it has no tools.
    pub dialect: &'a Dialect,
    /// Whether it may call tools.
    pub may_call: bool,
    /// The end of the rendered prompt, which tells whether the answer begins within reasoning.
    pub prompt_end: &'a str,
}

impl ReasoningBudget {
    /// A limit of `limit` tokens. `None` if the model does not reason, or its marks cannot be encoded.
    pub(crate) fn new(
        limit: usize,
        source: ReasoningSource<'_>,
        tokenizer: &Tokenizer,
        tokens: TokEnv,
    ) -> Option<ReasoningBudget> {
        let end = source.dialect.reasoning_end(source.may_call)?;
        let closing = tokenizer
            .encode_rendered(&end.text)
            .ok()
            .filter(|ids| !ids.is_empty())?;
        let forbidden = tokenizer.encode_rendered(end.forbidden).ok()?.first().copied();
        let reader = AnswerReader::new(*source.dialect, Default::default(), source.prompt_end);
        let mut budget = ReasoningBudget {
            limit,
            used: 0,
            reader,
            text: TokenText::new(tokens),
            closing: closing.into(),
            forbidden,
            state: State::Free,
        };
        budget.close_if_used_up();
        Some(budget)
    }

    /// Returns a constraint for one answer, within another one if there is any.
    pub fn around(&self, inner: Option<Box<dyn TokenConstraint>>) -> Box<dyn TokenConstraint> {
        Box::new(BudgetedConstraint {
            budget: self.clone(),
            inner,
        })
    }

    fn close_if_used_up(&mut self) {
        let is_whole = self.text.is_complete() || self.used >= self.limit.saturating_add(MAX_OVERRUN);
        if self.state == State::Free && self.used >= self.limit && is_whole && self.reader.is_reasoning() {
            self.state = State::Closing(0);
        }
    }

    fn accept(&mut self, token: u32) {
        let was_reasoning = self.reader.is_reasoning();
        let text = self.text.push(token);
        drop(self.reader.push(&text));
        self.state = match self.state {
            State::Closing(at) if self.closing[at] == token => match at + 1 {
                next if next < self.closing.len() => State::Closing(next),
                _ => State::Closed,
            },
            State::Free | State::Closing(_) | State::Closed => {
                self.used += usize::from(was_reasoning && self.state == State::Free);
                State::Free
            }
        };
        self.close_if_used_up();
    }
}

/// A budget, and what else restricts the answer.
struct BudgetedConstraint {
    budget: ReasoningBudget,
    inner: Option<Box<dyn TokenConstraint>>,
}

impl TokenConstraint for BudgetedConstraint {
    fn restricts(&self) -> bool {
        self.budget.state != State::Free || self.inner.as_ref().is_some_and(|inner| inner.restricts())
    }

    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        match &mut self.inner {
            Some(inner) => inner.fill_mask(bits)?,
            None => bits.fill(u32::MAX),
        }
        let is_allowed = |bits: &[u32], id: u32| {
            bits.get(id as usize / 32)
                .is_some_and(|word| word >> (id % 32) & 1 == 1)
        };
        match (self.budget.state, self.budget.forbidden) {
            (State::Closing(at), _) => {
                let next = self.budget.closing[at];
                // A grammar that has something else to say about the reasoning's end wins.
                if is_allowed(bits, next) {
                    bits.fill(0);
                    set(bits, next, true);
                }
            }
            (State::Closed, Some(forbidden)) if is_allowed(bits, forbidden) => {
                set(bits, forbidden, false);
                if bits.iter().all(|word| *word == 0) {
                    set(bits, forbidden, true);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        self.budget.accept(token);
        match &mut self.inner {
            Some(inner) => inner.accept(token),
            None => Ok(false),
        }
    }
}
