//! How likely tokens were: what clients ask, and how they are told.

use std::borrow::Cow;

use refrain_engine::PickedToken;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::served::ServedModel;

/// The most alternatives of a token that a chat is told, and a completion.
const MOST_OF_CHAT: u64 = refrain_engine::MOST_LIKELIEST as u64;
const MOST_OF_COMPLETION: u64 = 5;
/// What is said of tokens that are impossible: JSON has no infinity.
const IMPOSSIBLE: f32 = -9999.0;

/// What clients ask of likelihoods: chats by a switch and a number, completions by a number.
#[derive(Debug, Deserialize)]
pub(crate) struct LikelihoodFields {
    logprobs: Option<Value>,
    top_logprobs: Option<Value>,
}

impl LikelihoodFields {
    /// How many of the likeliest tokens a chat wants to be told; `None` if it does not want to hear of any.
    ///
    /// # Errors
    /// What is neither a switch nor a number that there may be.
    pub fn of_chat(&self) -> Result<Option<usize>, Refusal> {
        let most = number("top_logprobs", self.top_logprobs.as_ref(), MOST_OF_CHAT)?;
        match (&self.logprobs, most) {
            (Some(Value::Bool(true)), most) => Ok(Some(most.unwrap_or(0))),
            (None | Some(Value::Null | Value::Bool(false)), None | Some(0)) => Ok(None),
            (None | Some(Value::Null | Value::Bool(false)), Some(_)) => {
                Err(Refusal::field("top_logprobs", "needs logprobs: true"))
            }
            (Some(other), _) => Err(Refusal::field("logprobs", format!("{other} is neither true nor false"))),
        }
    }

    /// The same of Ollama's chats, which pass over the number where the switch is off.
    ///
    /// # Errors
    /// What is neither a switch nor a number that there may be.
    pub fn of_ollama(&self) -> Result<Option<usize>, Refusal> {
        let most = number("top_logprobs", self.top_logprobs.as_ref(), MOST_OF_CHAT)?;
        match &self.logprobs {
            Some(Value::Bool(true)) => Ok(Some(most.unwrap_or(0))),
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            Some(other) => Err(Refusal::field("logprobs", format!("{other} is neither true nor false"))),
        }
    }

    /// The same of a completion.
    ///
    /// # Errors
    /// What is no number that there may be.
    pub fn of_completion(&self) -> Result<Option<usize>, Refusal> {
        number("logprobs", self.logprobs.as_ref(), MOST_OF_COMPLETION)
    }
}

fn number(field: &'static str, value: Option<&Value>, most: u64) -> Result<Option<usize>, Refusal> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number <= most) {
            Some(number) => Ok(Some(number as usize)),
            None => Err(Refusal::field(
                field,
                format!("{value} is not a number from 0 to {most}"),
            )),
        },
    }
}

/// A token as chats are told of it.
pub(crate) fn of_chat(model: &ServedModel, token: &PickedToken) -> Value {
    let entry = |id: u32, likely: f32| {
        let bytes = model.bytes_of(id);
        json!({"token": text(bytes), "logprob": finite(likely), "bytes": bytes})
    };
    let Some(likelihoods) = &token.likelihoods else {
        return Value::Null;
    };
    let others = likelihoods.likeliest.iter().map(|&(id, likely)| entry(id, likely));
    let others: Vec<Value> = others.collect();
    let mut told = entry(token.id, likelihoods.picked);
    told["top_logprobs"] = others.into();
    told
}

/// Tokens as completions are told of them; `begin` is where the first begins, in characters, and moves behind the last.
pub(super) fn of_completion(model: &ServedModel, tokens: &[PickedToken], begin: &mut usize) -> Value {
    let [mut texts, mut likely, mut others, mut offsets] = [const { Vec::<Value>::new() }; 4];
    for token in tokens {
        let Some(likelihoods) = &token.likelihoods else {
            continue;
        };
        let written = text(model.bytes_of(token.id));
        let picked = (token.id, likelihoods.picked);
        let mut top = Map::new();
        // The picked one is among them, as they have it.
        for &(id, likely) in likelihoods.likeliest.iter().chain([&picked]) {
            let name = text(model.bytes_of(id)).into_owned();
            top.entry(name).or_insert(finite(likely).into());
        }
        offsets.push((*begin).into());
        *begin += written.chars().count();
        texts.push(written.into());
        likely.push(finite(likelihoods.picked).into());
        others.push(if likelihoods.likeliest.is_empty() {
            Value::Null
        } else {
            top.into()
        });
    }
    json!({"tokens": texts, "token_logprobs": likely, "top_logprobs": others, "text_offset": offsets})
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn finite(likely: f32) -> f32 {
    likely.max(IMPOSSIBLE)
}
