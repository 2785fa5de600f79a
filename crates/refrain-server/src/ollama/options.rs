//! What Ollama's clients say beside the text.

use refrain_engine::GenerateOptions;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::OllamaRefusal;
use crate::error::Refusal;
use crate::openai::options::GenerationFields;
use crate::openai::structure::{self, AskedForm};
use crate::served::ServedModel;

/// What `/api/chat` and `/api/generate` share; how long a model is kept and what it is loaded with is the server's affair.
#[derive(Deserialize)]
pub(super) struct OllamaFields {
    model: Option<String>,
    pub stream: Option<bool>,
    /// Whether the model thinks first, or how much.
    think: Option<Value>,
    format: Option<Value>,
    #[serde(default)]
    options: Map<String, Value>,
}

/// The options that are followed, and OpenAI's names for them.
const NAMES: [(&str, &str); 10] = [
    ("num_predict", "max_tokens"),
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("seed", "seed"),
    ("stop", "stop"),
    ("repeat_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
];

impl OllamaFields {
    /// How the text is generated.
    ///
    /// # Errors
    /// What cannot be followed, by its name.
    pub fn options(&self, model: &ServedModel) -> Result<GenerateOptions, OllamaRefusal> {
        check_name(model, self.model.as_deref())?;
        let mut fields = Map::new();
        for (name, field) in NAMES {
            match self.options.get(name) {
                // As many tokens as there is room for.
                Some(count) if name == "num_predict" && count.as_i64().is_some_and(|count| count < 0) => {}
                Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
                None => {}
            }
        }
        let fields: GenerationFields =
            serde_json::from_value(fields.into()).map_err(|why| Refusal::field("options", why.to_string()))?;
        Ok(fields.options(model)?.swap_remove(0))
    }

    /// The form of the answer, if one is asked for.
    ///
    /// # Errors
    /// What is neither a word for one nor a schema.
    pub fn form(&self) -> Result<Option<AskedForm>, Refusal> {
        structure::of_ollama(self.format.as_ref())
    }

    /// Whether the model shall think, if that was said.
    pub fn think(&self) -> Option<bool> {
        match self.think.as_ref()? {
            Value::Bool(think) => Some(*think),
            Value::String(_) => Some(true),
            _ => None,
        }
    }
}

/// Whether this is the model that is meant: Ollama's clients may add a tag to its name.
pub(super) fn check_name(model: &ServedModel, asked: Option<&str>) -> Result<(), OllamaRefusal> {
    Ok(model.check_name(asked.map(|name| name.strip_suffix(":latest").unwrap_or(name)))?)
}
