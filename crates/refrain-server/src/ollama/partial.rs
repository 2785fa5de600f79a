//! What was read of an answer and not yet sent: text at once, calls when they are whole.

use refrain_text::dialects::AnswerPiece;
use refrain_text::exact;
use serde_json::{Value, json};

use crate::openai::new_call_id;

/// A part of an answer.
#[derive(Debug, Default)]
pub(super) struct Partial {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<PartialCall>,
    /// Log-probabilities of its tokens, if they are requested.
    pub logprobs: Vec<Value>,
    /// Calls of the answer before this part.
    calls_before: usize,
}

/// A tool call so far.
#[derive(Debug)]
pub(super) struct PartialCall {
    index: usize,
    name: String,
    /// JSON.
    arguments: String,
}

impl PartialCall {
    /// The call as this API has it: its arguments are an object. `None` for a call that was cut off.
    pub fn json(&self) -> Option<Value> {
        let arguments = exact::parse(&self.arguments).ok().filter(Value::is_object)?;
        let function = json!({"index": self.index, "name": self.name, "arguments": arguments});
        Some(json!({"id": new_call_id(), "function": function}))
    }
}

impl Partial {
    /// Adds a piece.
    pub fn add(&mut self, piece: AnswerPiece) {
        match piece {
            AnswerPiece::Reasoning(piece) => self.thinking.push_str(&piece),
            AnswerPiece::Text(piece) => self.text.push_str(&piece),
            AnswerPiece::Call { name, .. } => {
                let (index, arguments) = (self.calls_before + self.calls.len(), String::new());
                self.calls.push(PartialCall { index, name, arguments });
            }
            AnswerPiece::Arguments(piece) => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&piece);
                }
            }
        }
    }

    /// Adds a piece of a stream. Returns what may be sent now.
    pub fn push(&mut self, piece: AnswerPiece) -> Option<Partial> {
        let is_call = matches!(piece, AnswerPiece::Call { .. } | AnswerPiece::Arguments(_));
        // What came before a call is sent before it.
        let before = if is_call {
            self.take_ready(matches!(piece, AnswerPiece::Arguments(_)))
        } else {
            None
        };
        self.add(piece);
        before.or_else(|| self.take_ready(is_call))
    }

    /// Takes out what may be sent while the last call may get more arguments.
    fn take_ready(&mut self, is_call_open: bool) -> Option<Partial> {
        let last = if is_call_open { self.calls.pop() } else { None };
        if self.text.is_empty() && self.thinking.is_empty() && self.calls.is_empty() {
            self.calls.extend(last);
            return None;
        }
        let ready = std::mem::take(self);
        self.calls_before = ready.calls_before + ready.calls.len();
        self.calls.extend(last);
        Some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> AnswerPiece {
        AnswerPiece::Call {
            name: name.to_owned(),
            id: None,
        }
    }

    fn arguments(text: &str) -> AnswerPiece {
        AnswerPiece::Arguments(text.to_owned())
    }

    #[test]
    fn calls_are_sent_when_they_are_whole() {
        let mut pending = Partial::default();
        let mut sent = vec![];
        let pieces = vec![
            AnswerPiece::Text("a".to_owned()),
            call("f"),
            arguments("{\"x\":"),
            arguments("1}"),
            call("g"),
            arguments("{}"),
            AnswerPiece::Text("b".to_owned()),
            call("h"),
        ];
        for piece in pieces {
            sent.extend(pending.push(piece));
        }
        sent.push(pending);
        let written: Vec<(String, Vec<Value>)> = sent
            .iter()
            .map(|part| {
                (
                    part.text.clone(),
                    part.calls
                        .iter()
                        .filter_map(|call| Some(call.json()?["function"].clone()))
                        .collect(),
                )
            })
            .collect();
        let f = json!({"index": 0, "name": "f", "arguments": {"x": 1}});
        let g = json!({"index": 1, "name": "g", "arguments": {}});
        // The last call was cut off.
        let expected = [("a", vec![]), ("", vec![f]), ("b", vec![g]), ("", vec![])];
        assert_eq!(written, expected.map(|(text, calls)| (text.to_owned(), calls)));
    }

    #[test]
    fn numbers_of_arguments_keep_their_digits() {
        let mut part = Partial::default();
        part.add(call("f"));
        part.add(arguments("{\"id\": 98765432109876543210}"));
        let written = exact::to_string(&part.calls[0].json().unwrap());
        assert!(
            written.contains("\"arguments\":{\"id\":98765432109876543210}"),
            "{written}"
        );
    }
}
