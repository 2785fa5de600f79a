//! Log-probabilities of tokens: what clients request, and how it is written.

use std::borrow::Cow;

use refrain_engine::PickedToken;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fields::FieldReader;
use crate::error::Refusal;
use crate::served::ServedModel;

/// Limit of the alternatives per token.
const MAX_ALTERNATIVES: u64 = refrain_engine::MAX_TOP_LOGPROBS as u64;
/// The log-probability of impossible tokens: JSON has no infinity.
const MIN_LOGPROB: f32 = -9999.0;

/// The fields that request log-probabilities: a switch and a number in chats, a number in completions.
#[derive(Debug, Deserialize)]
pub(crate) struct LogprobFields {
    logprobs: Option<Value>,
    top_logprobs: Option<Value>,
}

impl LogprobFields {
    /// Reads the fields of a request.
    pub fn read(fields: &mut FieldReader) -> LogprobFields {
        LogprobFields {
            logprobs: fields.value("logprobs"),
            top_logprobs: fields.value("top_logprobs"),
        }
    }

    /// Returns the number of alternatives per token for a chat; `None` if no log-probabilities are requested.
    ///
    /// # Errors
    /// If a value has the wrong type or is out of its range.
    pub fn of_chat(&self) -> Result<Option<usize>, Refusal> {
        let count = number("top_logprobs", self.top_logprobs.as_ref(), MAX_ALTERNATIVES)?;
        match (&self.logprobs, count) {
            (Some(Value::Bool(true)), count) => Ok(Some(count.unwrap_or(0))),
            (None | Some(Value::Null | Value::Bool(false)), None | Some(0)) => Ok(None),
            (None | Some(Value::Null | Value::Bool(false)), Some(_)) => {
                Err(Refusal::field("top_logprobs", "needs logprobs: true"))
            }
            (Some(other), _) => Err(Refusal::field("logprobs", format!("{other} is neither true nor false"))),
        }
    }

    /// As [`LogprobFields::of_chat`] for a completion.
    ///
    /// # Errors
    /// If the number is out of its range.
    pub fn of_completion(&self) -> Result<Option<usize>, Refusal> {
        number("logprobs", self.logprobs.as_ref(), MAX_ALTERNATIVES)
    }
}

fn number(field: &'static str, value: Option<&Value>, max: u64) -> Result<Option<usize>, Refusal> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number <= max) {
            Some(number) => Ok(Some(number as usize)),
            None => Err(Refusal::field(
                field,
                format!("{value} is not a number from 0 to {max}"),
            )),
        },
    }
}

/// Returns the entry of a token in a chat.
pub(crate) fn of_chat(model: &ServedModel, token: &PickedToken) -> Value {
    let entry = |id: u32, logprob: f32| {
        let bytes = model.bytes_of(id);
        json!({"token": text(bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let Some(logprobs) = &token.logprobs else {
        return Value::Null;
    };
    let others = logprobs.top.iter().map(|&(id, logprob)| entry(id, logprob));
    let others: Vec<Value> = others.collect();
    let mut entry = entry(token.id, logprobs.sampled);
    entry["top_logprobs"] = others.into();
    entry
}

/// Where tokens stand in a text: the characters before, and bytes behind these that are not a whole one yet.
#[derive(Debug, Clone, Default)]
pub(super) struct TextOffset {
    characters: usize,
    partial: Vec<u8>,
}

impl TextOffset {
    /// Moves behind the bytes of a token.
    fn advance(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.characters += chunk.valid().chars().count();
            match std::str::from_utf8(chunk.invalid()) {
                Ok(_) => {}
                // The beginning of a character: the rest of it may follow.
                Err(error) if error.error_len().is_none() && chunks.peek().is_none() => {
                    self.partial = chunk.invalid().to_vec();
                }
                Err(_) => self.characters += 1,
            }
        }
    }
}

/// An echoed prompt at the beginning of a completion.
pub(super) struct Echoed<'a> {
    /// Its first token, which has no log-probability; `None` if there is none, or it was written before.
    pub first: Option<u32>,
    /// How many of the tokens that follow are the prompt's.
    pub others: usize,
    /// The text that begins with it.
    pub text: &'a str,
}

/// Returns the `logprobs` of tokens in a completion. `begin` is where the first one stands in the text, and moves
/// behind the last. Tokens without log-probabilities are left out.
pub(super) fn of_completion(
    model: &ServedModel,
    echoed: &Echoed,
    tokens: &[PickedToken],
    begin: &mut TextOffset,
) -> Value {
    let [mut texts, mut sampled, mut others, mut offsets] = [const { Vec::<Value>::new() }; 4];
    if let Some(first) = echoed.first {
        offsets.push(begin.characters.into());
        // The tokenizer may have added it.
        let bytes = model.bytes_of(first);
        let is_written = echoed.text.as_bytes().starts_with(bytes);
        begin.advance(if is_written { bytes } else { model.text_bytes_of(first) });
        texts.push(text(model.bytes_of(first)).into());
        sampled.push(Value::Null);
        others.push(Value::Null);
    }
    for (number, token) in tokens.iter().enumerate() {
        let Some(logprobs) = &token.logprobs else {
            continue;
        };
        let picked = (token.id, logprobs.sampled);
        let mut top = Map::new();
        // The sampled token is always among them.
        for &(id, logprob) in logprobs.top.iter().chain([&picked]) {
            let name = text(model.bytes_of(id)).into_owned();
            top.entry(name).or_insert(finite(logprob).into());
        }
        offsets.push(begin.characters.into());
        // Of prompts, special tokens are text, too.
        begin.advance(if number < echoed.others {
            model.bytes_of(token.id)
        } else {
            model.text_bytes_of(token.id)
        });
        texts.push(text(model.bytes_of(token.id)).into());
        sampled.push(finite(logprobs.sampled).into());
        others.push(if logprobs.top.is_empty() {
            Value::Null
        } else {
            top.into()
        });
    }
    json!({"tokens": texts, "token_logprobs": sampled, "top_logprobs": others, "text_offset": offsets})
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn finite(logprob: f32) -> f32 {
    logprob.max(MIN_LOGPROB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_whole_characters() {
        let mut offset = TextOffset::default();
        let mut after = |bytes: &[u8]| {
            offset.advance(bytes);
            offset.characters
        };
        // The second character has two bytes, the fourth has four.
        assert_eq!(
            [&b"G\xc3"[..], b"\xbc", b"n\xf0\x9f", b"\x98", b"\x80!"].map(&mut after),
            [1, 2, 3, 3, 5]
        );
        assert_eq!(
            [&b"\xff"[..], b"a\xc3", b"b"].map(&mut after),
            [6, 7, 9],
            "bytes that are no text"
        );
    }
}
