//! Log-probabilities of tokens: what clients request, and how it is written.

use std::borrow::Cow;

use refrain_engine::PickedToken;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fields::FieldReader;
use crate::error::Refusal;
use crate::served::ServedModel;

/// Limits of the alternatives per token in chats and in completions.
const MAX_IN_CHAT: u64 = refrain_engine::MAX_TOP_LOGPROBS as u64;
const MAX_IN_COMPLETION: u64 = 5;
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
        let count = number("top_logprobs", self.top_logprobs.as_ref(), MAX_IN_CHAT)?;
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
        number("logprobs", self.logprobs.as_ref(), MAX_IN_COMPLETION)
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

/// Returns the `logprobs` of tokens in a completion. `begin` is the offset of the first one in characters, and moves
/// behind the last. Tokens without log-probabilities are left out.
/// `first` is a token before them that has no log-probability: the first one of an echoed prompt.
pub(super) fn of_completion(
    model: &ServedModel,
    first: Option<u32>,
    tokens: &[PickedToken],
    begin: &mut usize,
) -> Value {
    let [mut texts, mut sampled, mut others, mut offsets] = [const { Vec::<Value>::new() }; 4];
    if let Some(first) = first {
        let written = text(model.bytes_of(first));
        offsets.push((*begin).into());
        *begin += written.chars().count();
        texts.push(written.into());
        sampled.push(Value::Null);
        others.push(Value::Null);
    }
    for token in tokens {
        let Some(logprobs) = &token.logprobs else {
            continue;
        };
        let written = text(model.bytes_of(token.id));
        let picked = (token.id, logprobs.sampled);
        let mut top = Map::new();
        // The sampled token is always among them.
        for &(id, logprob) in logprobs.top.iter().chain([&picked]) {
            let name = text(model.bytes_of(id)).into_owned();
            top.entry(name).or_insert(finite(logprob).into());
        }
        offsets.push((*begin).into());
        *begin += written.chars().count();
        texts.push(written.into());
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
