//! Default sampling parameters of a model (`generation_config.json`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::files::JsonObject;

/// The values of `generation_config.json`; `None` if the file does not set them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GenerationConfig {
    /// Tokens after which generation ends.
    pub eos_ids: Vec<u32>,
    /// Whether to sample (true) or to decode greedily (false).
    pub do_sample: Option<bool>,
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// Sample among the k most likely tokens; 0 means no limit.
    pub top_k: Option<usize>,
    /// Sample among the most likely tokens that together reach this probability.
    pub top_p: Option<f32>,
    /// Sample among tokens with at least this fraction of the top token's probability.
    pub min_p: Option<f32>,
    /// Divides positive logits and multiplies negative ones of tokens seen before.
    pub repetition_penalty: Option<f32>,
    /// Suggested number of new tokens.
    pub max_new_tokens: Option<usize>,
}

impl GenerationConfig {
    /// Parses the object of a `generation_config.json`. Invalid values are errors, since sampling with them would
    /// give wrong results.
    pub(crate) fn from_json(object: &JsonObject, file: &str) -> Result<Self, Error> {
        let double = |key: &str| -> Result<Option<f64>, Error> {
            match object.get(key) {
                None | Some(Value::Null) => Ok(None),
                Some(value) => match value.as_f64() {
                    Some(number) if number >= 0.0 => Ok(Some(number)),
                    _ => Err(Error::file(
                        file,
                        format!("{key} is {value}, not a number of 0 or more"),
                    )),
                },
            }
        };
        let number = |key: &str| Ok::<_, Error>(double(key)?.map(|number| number as f32));
        let whole = |key: &str| Ok::<_, Error>(double(key)?.map(|number| number as usize));
        Ok(GenerationConfig {
            eos_ids: token_ids(object, "eos_token_id", file)?,
            do_sample: object.get("do_sample").and_then(Value::as_bool),
            temperature: number("temperature")?,
            top_k: whole("top_k")?,
            top_p: number("top_p")?,
            min_p: number("min_p")?,
            repetition_penalty: number("repetition_penalty")?,
            max_new_tokens: whole("max_new_tokens")?,
        })
    }
}

/// Parses token ids under `key`: a number, a list of numbers, or nothing.
pub(crate) fn token_ids(object: &JsonObject, key: &str, file: &str) -> Result<Vec<u32>, Error> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| Error::file(file, format!("{key} holds {value}, which is not a token id")))
    };
    match object.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(id).collect(),
        // Some published configurations write -1 for "none".
        Some(value) if value.as_i64() == Some(-1) => Ok(Vec::new()),
        Some(value) => Ok(vec![id(value)?]),
    }
}
