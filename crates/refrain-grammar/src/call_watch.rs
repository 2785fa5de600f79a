//! Watches free text for the texts that begin calls.

use std::sync::Arc;

use llguidance::toktrie::TokEnv;

use crate::call_grammar::{CallGrammar, TriggerPlace};
use crate::token_text::TokenText;

/// Characters before a trigger that are looked at, in bytes.
const CONTEXT_BYTES: usize = 64;

/// Watches the tokens of one answer.
#[derive(Clone)]
pub(crate) struct CallWatch {
    grammar: Arc<CallGrammar>,
    text: TokenText,
    /// The last tokens, and where each ends in `tail`.
    tokens: Vec<(u32, usize)>,
    /// Their bytes.
    tail: Vec<u8>,
    /// Whether the tail begins where the answer, a text behind reasoning, or a text behind a call does.
    is_front: bool,
    is_reasoning: bool,
    /// Bytes of the longest mark.
    longest: usize,
}

impl CallWatch {
    pub fn new(grammar: &CallGrammar, tokens: TokEnv) -> CallWatch {
        let triggers = grammar.triggers.iter().map(|trigger| trigger.text.len());
        let marks = grammar.reasoning.map(|marks| marks.open.len().max(marks.close.len()));
        CallWatch {
            longest: triggers.chain(marks).max().unwrap_or(0),
            is_reasoning: grammar.is_reasoning,
            grammar: Arc::new(grammar.clone()),
            text: TokenText::new(tokens),
            tokens: vec![],
            tail: vec![],
            is_front: true,
        }
    }

    /// Whether text or another call may follow a call.
    pub fn several(&self) -> bool {
        self.grammar.several
    }

    /// Begins again behind a call.
    pub fn restart(&mut self) {
        self.tokens.clear();
        self.tail.clear();
        self.is_front = true;
    }

    /// Adds a token. If it completes a trigger, returns the tokens from there on, for the call's grammar.
    pub fn push(&mut self, token: u32) -> Option<Vec<u32>> {
        let new = self.tail.len();
        self.tail.extend_from_slice(self.text.bytes(token));
        self.tokens.push((token, self.tail.len()));
        if let Some(marks) = self.grammar.reasoning {
            if self.is_reasoning {
                if self.find(marks.close, new).is_some() {
                    self.is_reasoning = false;
                    self.restart();
                }
                self.trim();
                return None;
            }
            let open = self.find(marks.open, new);
            if open.is_some_and(|at| self.is_front && self.tail[..at].trim_ascii().is_empty()) {
                self.is_reasoning = true;
            }
        }
        let begins = |trigger: &&crate::call_grammar::Trigger| {
            let at = self.find(&trigger.text, new)?;
            self.is_at_place(trigger.place, at).then_some(at)
        };
        let found = self
            .grammar
            .triggers
            .iter()
            .filter_map(|trigger| begins(&trigger))
            .min();
        let call = found.map(|at| self.tokens_from(at));
        self.trim();
        call
    }

    /// The place of a mark that ends behind `new`, the first byte of the last token.
    fn find(&self, mark: &str, new: usize) -> Option<usize> {
        let from = (new + 1).saturating_sub(mark.len());
        let window = self.tail.get(from..)?;
        let at = window
            .windows(mark.len().max(1))
            .position(|bytes| bytes == mark.as_bytes())?;
        Some(from + at)
    }

    fn is_at_place(&self, place: TriggerPlace, at: usize) -> bool {
        let before = self.tail[..at].trim_ascii_end();
        let is_front = self.is_front && before.is_empty();
        match place {
            TriggerPlace::Anywhere => true,
            TriggerPlace::Front => {
                let start = self.grammar.start.as_bytes();
                is_front || !start.is_empty() && before.ends_with(start)
            }
            TriggerPlace::Sentence => {
                let is_new_line = self.tail[before.len()..at].contains(&b'\n');
                let ends = |byte: &u8| b".:!?)>]".contains(byte);
                is_front || is_new_line || before.last().is_some_and(ends) || before.ends_with("…".as_bytes())
            }
        }
    }

    /// The tokens of the tail from a byte on. A token that begins before it is split.
    fn tokens_from(&self, at: usize) -> Vec<u32> {
        let behind = self.tokens.partition_point(|(_, end)| *end <= at);
        let begin = behind.checked_sub(1).map_or(0, |before| self.tokens[before].1);
        let (split, rest) = match self.tokens.get(behind) {
            Some((_, end)) if begin < at => (self.text.tokens(&self.tail[at..*end]), behind + 1),
            _ => (vec![], behind),
        };
        let rest = self.tokens[rest..].iter().map(|(token, _)| *token);
        split.into_iter().chain(rest).collect()
    }

    /// Drops the first tokens of a long tail.
    fn trim(&mut self) {
        let kept = self.longest + CONTEXT_BYTES;
        if self.tail.len() < 4 * kept {
            return;
        }
        let count = self.tokens.partition_point(|(_, end)| *end + kept <= self.tail.len());
        let Some(bytes) = count.checked_sub(1).map(|last| self.tokens[last].1) else {
            return;
        };
        self.tail.drain(..bytes);
        self.tokens.drain(..count);
        self.tokens.iter_mut().for_each(|(_, end)| *end -= bytes);
        self.is_front = false;
    }
}
