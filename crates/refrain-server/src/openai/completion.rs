//! Completions, as `/v1/completions` writes them.

use std::sync::Arc;

use refrain_engine::{Finish, PickedToken};
use refrain_text::dialects::AnswerPiece;
use serde_json::{Value, json};

use super::logprob::{self, TextOffset};
use super::reply::{ReplyForm, finish_reason};
use crate::served::ServedModel;

/// Writes completions.
#[derive(Clone)]
pub(super) struct CompletionForm {
    pub model: Arc<ServedModel>,
    /// How each choice begins.
    pub begun: Arc<[Completion]>,
}

/// A text so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Completion {
    text: String,
    /// The first token of an echoed prompt, which has no log-probability, and how many others of the prompt come before
    /// the answer's. Their text is there already.
    first: Option<u32>,
    echoed: usize,
    tokens: Vec<PickedToken>,
    /// Number of tokens whose log-probabilities were streamed, and where the next one stands.
    streamed: usize,
    offset: TextOffset,
}

impl Completion {
    /// A text that begins with an echoed prompt.
    pub fn of_text(text: String) -> Completion {
        Completion {
            text,
            ..Completion::default()
        }
    }

    /// The same where the log-probabilities of the prompt's tokens come before the answer's.
    pub fn of_scored(text: String, prompt: &[u32]) -> Completion {
        Completion {
            text,
            first: prompt.first().copied(),
            echoed: prompt.len().saturating_sub(1),
            ..Completion::default()
        }
    }
}

impl CompletionForm {
    /// Returns the log-probabilities that were not streamed yet.
    fn logprobs(&self, completion: &mut Completion) -> Value {
        let tokens = &completion.tokens[completion.streamed..];
        let begin = logprob::Echoed {
            first: completion.first.filter(|_| completion.streamed == 0),
            others: completion.echoed.saturating_sub(completion.streamed),
            text: &completion.text,
        };
        completion.streamed = completion.tokens.len();
        if tokens.is_empty() && begin.first.is_none() {
            Value::Null
        } else {
            logprob::of_completion(&self.model, &begin, tokens, &mut completion.offset)
        }
    }
}

impl ReplyForm for CompletionForm {
    type Choice = Completion;

    fn begin(&self, index: usize) -> Completion {
        self.begun.get(index).cloned().unwrap_or_default()
    }

    fn push(&self, completion: &mut Completion, pieces: Vec<AnswerPiece>, tokens: Vec<PickedToken>) -> Vec<Value> {
        let texts = pieces.into_iter().filter_map(|piece| match piece {
            AnswerPiece::Text(text) => Some(text),
            _ => None,
        });
        let mut text: String = texts.collect();
        completion.tokens.extend(tokens);
        if completion.first.is_some() && completion.tokens.len() <= completion.echoed {
            text.clear();
        }
        completion.text.push_str(&text);
        vec![choice(&text, self.logprobs(completion), None)]
    }

    fn finish(&self, completion: &mut Completion, tokens: Vec<PickedToken>) -> Vec<Value> {
        completion.tokens.extend(tokens);
        match self.logprobs(completion) {
            Value::Null => vec![],
            logprobs => vec![choice("", logprobs, None)],
        }
    }

    fn last(&self, _: &Completion, finish: Finish) -> Value {
        choice("", Value::Null, Some(finish))
    }

    fn whole(&self, mut completion: Completion, finish: Finish) -> Value {
        (completion.streamed, completion.offset) = (0, TextOffset::default());
        let logprobs = self.logprobs(&mut completion);
        choice(&completion.text, logprobs, Some(finish))
    }

    fn first(&self, completion: &mut Completion) -> Option<Value> {
        let text = completion.text.clone();
        (!text.is_empty()).then(|| choice(&text, Value::Null, None))
    }

    fn objects(&self) -> [&'static str; 2] {
        ["text_completion"; 2]
    }
}

fn choice(text: &str, logprobs: Value, finish: Option<Finish>) -> Value {
    json!({"text": text, "logprobs": logprobs, "finish_reason": finish.map(finish_reason)})
}
