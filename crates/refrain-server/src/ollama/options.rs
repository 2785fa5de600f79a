//! What Ollama's clients say beside the text.

use std::sync::Arc;
use std::time::Duration;

use refrain_engine::GenerateOptions;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::OllamaRefusal;
use crate::error::Refusal;
use crate::openai::likelihood::LikelihoodFields;
use crate::openai::options::GenerationFields;
use crate::openai::structure::{self, AskedForm};
use crate::served::{ServedModel, ServedModels};
use crate::shelf::keep_alive;

/// Which model is meant.
#[derive(Deserialize)]
pub(super) struct ModelFields {
    model: Option<String>,
    /// How long it stays loaded when nobody asks for it.
    keep_alive: Option<Value>,
}

impl ModelFields {
    /// The model that is meant.
    ///
    /// # Errors
    /// One that is not served; a time that is none.
    pub fn model(&self, models: &ServedModels) -> Result<Arc<ServedModel>, Refusal> {
        self.stay()?;
        models.named(self.model.as_deref())
    }

    /// Lets the model stay as long as is asked for, from now on; it goes only when its engine is let go.
    pub fn keep(&self, model: &ServedModel) {
        if let Ok(Some(stay)) = self.stay() {
            model.keep(stay);
        }
    }

    /// Whether the model is not to stay at all.
    pub fn sends_away(&self) -> bool {
        matches!(self.stay(), Ok(Some(Some(Duration::ZERO))))
    }

    /// How long the model is to stay, if that is said.
    fn stay(&self) -> Result<Option<Option<Duration>>, Refusal> {
        let text = match &self.keep_alive {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let stay = keep_alive(&text).map_err(|why| Refusal::field("keep_alive", why))?;
        Ok(Some(stay))
    }
}

/// What `/api/chat` and `/api/generate` share; what a model is loaded with is the server's affair.
#[derive(Deserialize)]
pub(super) struct OllamaFields {
    #[serde(flatten)]
    pub named: ModelFields,
    pub stream: Option<bool>,
    /// Whether the model thinks first, or how much.
    think: Option<Value>,
    format: Option<Value>,
    #[serde(flatten)]
    pub likelihoods: LikelihoodFields,
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
