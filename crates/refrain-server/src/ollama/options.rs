//! The fields that Ollama's requests share.

use std::sync::Arc;
use std::time::Duration;

use refrain_engine::{GenerateOptions, MAX_TOP_LOGPROBS, Sampler, SamplerOptions};
use refrain_text::ReasoningOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::OllamaRefusal;
use crate::error::Refusal;
use crate::openai::options::GenerationFields;
use crate::openai::structure::{self, ResponseFormat};
use crate::openapi::ollama::{KeepAlive, OllamaFormat, OllamaOptions, OllamaThink};
use crate::registry::keep_alive;
use crate::served::{ServedModel, ServedModels};

/// The fields that name the model.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ModelFields {
    model: Option<String>,
    /// The older name of `model`. Ollama's own programs send both, one of them empty.
    name: Option<String>,
    /// How long the model stays loaded when it is idle.
    #[schemars(with = "Option<KeepAlive>")]
    keep_alive: Option<Value>,
}

impl ModelFields {
    /// The model's name as the client gives it, if it does.
    pub fn name(&self) -> Option<&str> {
        let names = [&self.model, &self.name].into_iter().flatten();
        names.map(String::as_str).find(|name| !name.is_empty())
    }

    /// Returns the model.
    ///
    /// # Errors
    /// If the model is not served, or `keep_alive` is not a duration.
    pub fn model(&self, models: &ServedModels) -> Result<Arc<ServedModel>, Refusal> {
        self.stay()?;
        models.named(self.name())
    }

    /// Sets how long the model stays loaded, if the request says so.
    pub fn keep(&self, model: &ServedModel) {
        if let Ok(Some(stay)) = self.stay() {
            model.keep(stay);
        }
    }

    /// Whether the model is to be unloaded at once.
    pub fn unloads(&self) -> bool {
        matches!(self.stay(), Ok(Some(Some(Duration::ZERO))))
    }

    /// How long the model is to stay, if the request says so.
    fn stay(&self) -> Result<Option<Option<Duration>>, Refusal> {
        let text = match &self.keep_alive {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.is_empty() => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let stay = keep_alive(&text).map_err(|why| Refusal::field("keep_alive", why))?;
        Ok(Some(stay))
    }
}

/// The fields of `/api/chat` and `/api/generate`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OllamaFields {
    #[serde(flatten)]
    pub model: ModelFields,
    stream: Option<bool>,
    /// Whether the model reasons, or how much.
    #[schemars(with = "Option<OllamaThink>")]
    think: Option<Value>,
    #[schemars(with = "Option<OllamaFormat>")]
    format: Option<Value>,
    logprobs: Option<bool>,
    /// Number of alternatives of each token.
    #[schemars(with = "Option<u64>", range(min = 0, max = 20))]
    top_logprobs: Option<Value>,
    #[schemars(with = "Option<OllamaOptions>")]
    options: Option<Map<String, Value>>,
}

/// The options that are followed, and OpenAI's names for them. Options of the runner, such as `num_ctx`, are the
/// server's affair and are ignored.
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
    /// Whether the answer is streamed.
    pub fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(true)
    }

    fn option(&self, name: &str) -> Option<&Value> {
        self.options.as_ref()?.get(name).filter(|value| !value.is_null())
    }

    /// Returns how the answer is generated.
    ///
    /// # Errors
    /// If an option has a wrong type or is out of range, by its name.
    pub fn options(&self, model: &ServedModel) -> Result<GenerateOptions, OllamaRefusal> {
        let mut fields = Map::new();
        for (name, field) in NAMES {
            match self.option(name).cloned() {
                // As many tokens as there is room for.
                Some(count) if name == "num_predict" && count.as_f64().is_some_and(|count| count <= 0.0) => {}
                // A seed that is not given.
                Some(seed) if name == "seed" && seed.as_f64() == Some(-1.0) => {}
                Some(value) => drop(fields.insert(field.to_owned(), value)),
                None => {}
            }
        }
        let fields: GenerationFields =
            serde_json::from_value(fields.into()).map_err(|error| Refusal::field("options", error.to_string()))?;
        let mut options = fields.options(model)?.swap_remove(0);
        let repeat_last = match self.option("repeat_last_n") {
            Some(count) => recent_tokens(count, model.context)
                .ok_or_else(|| Refusal::field("options", "repeat_last_n: must be a whole number from -1 on"))?,
            None => model.suggested.repeat_last,
        };
        // Ollama's penalties count the last tokens, prompt included.
        let sampler = SamplerOptions {
            repeat_last,
            penalises_generated: false,
            ..options.sampler.options().clone()
        };
        options.sampler = Sampler::new(sampler).map_err(refrain_engine::Error::from)?;
        Ok(options)
    }

    /// Returns how many alternatives of each token are reported; `None` if log-probabilities are not.
    ///
    /// # Errors
    /// If `top_logprobs` is out of range.
    pub fn top_logprobs(&self) -> Result<Option<usize>, Refusal> {
        let most = MAX_TOP_LOGPROBS as f64;
        let count = match self.top_logprobs.as_ref().filter(|value| !value.is_null()) {
            None => 0,
            Some(value) => match value
                .as_f64()
                .filter(|count| count.fract() == 0.0 && (0.0..=most).contains(count))
            {
                Some(count) => count as usize,
                None => {
                    let why = format!("{value} is not a number from 0 to {most}");
                    return Err(Refusal::field("top_logprobs", why));
                }
            },
        };
        Ok((self.logprobs == Some(true)).then_some(count))
    }

    /// Returns the format of the answer, if one is requested.
    ///
    /// # Errors
    /// If it is neither `"json"` nor a schema.
    pub fn response_format(&self) -> Result<Option<ResponseFormat>, Refusal> {
        structure::of_ollama(self.format.as_ref())
    }

    /// Returns how the model is asked to reason.
    ///
    /// # Errors
    /// If `think` is neither a boolean nor a level.
    pub fn reasoning(&self) -> Result<ReasoningOptions, Refusal> {
        let level = |level: &str| ReasoningOptions {
            enabled: Some(true),
            effort: Some(level.to_owned()),
            budget: None,
        };
        match &self.think {
            None | Some(Value::Null) => Ok(ReasoningOptions::default()),
            Some(Value::Bool(think)) => Ok(ReasoningOptions::switched(Some(*think))),
            Some(Value::String(word)) => match word.as_str() {
                "" => Ok(ReasoningOptions::default()),
                "low" | "medium" | "high" => Ok(level(word)),
                "max" => Ok(level("high")),
                "true" => Ok(ReasoningOptions::switched(Some(true))),
                "false" | "none" => Ok(ReasoningOptions::switched(Some(false))),
                _ => Err(Refusal::field(
                    "think",
                    format!("{word:?} is not true, false, \"low\", \"medium\" or \"high\""),
                )),
            },
            Some(other) => Err(Refusal::field(
                "think",
                format!("{other} is not true, false, \"low\", \"medium\" or \"high\""),
            )),
        }
    }
}

/// Reads `repeat_last_n`: the number of last tokens that penalties count, or -1 for all.
fn recent_tokens(count: &Value, context: usize) -> Option<usize> {
    let count = count.as_f64().filter(|count| count.fract() == 0.0 && *count >= -1.0)?;
    Some(if count < 0.0 {
        context
    } else {
        (count as usize).min(context)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(body: Value) -> OllamaFields {
        serde_json::from_value(body).expect("fields")
    }

    #[test]
    fn a_model_has_either_of_two_names() {
        for (body, name) in [
            (json!({"model": "a", "name": ""}), Some("a")),
            (json!({"model": "", "name": "b"}), Some("b")),
            (json!({"model": "a", "name": "b"}), Some("a")),
            (json!({"name": "b"}), Some("b")),
            (json!({"model": null, "name": ""}), None),
            (json!({}), None),
        ] {
            assert_eq!(fields(body.clone()).model.name(), name, "{body}");
        }
    }

    #[test]
    fn nulls_are_absent_fields() {
        let names = [
            "model",
            "name",
            "keep_alive",
            "stream",
            "think",
            "format",
            "logprobs",
            "top_logprobs",
            "options",
        ];
        let nulls: Map<String, Value> = names.map(|name| (name.to_owned(), Value::Null)).into_iter().collect();
        let fields = fields(nulls.into());
        assert!(fields.is_streamed());
        assert_eq!(fields.top_logprobs().unwrap(), None);
        assert_eq!(fields.reasoning().unwrap(), ReasoningOptions::default());
        assert!(fields.response_format().unwrap().is_none());
        assert!(fields.model.stay().unwrap().is_none());
    }

    #[test]
    fn think_is_a_switch_or_a_level() {
        let think = |think: Value| {
            fields(json!({"think": think}))
                .reasoning()
                .map(|read| (read.enabled, read.effort))
        };
        assert_eq!(think(json!(false)).unwrap(), (Some(false), None));
        assert_eq!(think(json!(true)).unwrap(), (Some(true), None));
        assert_eq!(think(json!("low")).unwrap(), (Some(true), Some("low".to_owned())));
        assert_eq!(think(json!("max")).unwrap(), (Some(true), Some("high".to_owned())));
        for wrong in [json!("much"), json!(3), json!([])] {
            assert!(think(wrong).unwrap_err().to_string().starts_with("think: "));
        }
    }

    #[test]
    fn keep_alive_is_a_duration_or_a_number_of_seconds() {
        let stay = |keep: Value| fields(json!({"keep_alive": keep})).model.stay();
        let seconds = |count: u64| Some(Some(Duration::from_secs(count)));
        for (keep, expected) in [
            (json!("5m"), seconds(300)),
            (json!("1h30m"), seconds(5400)),
            (json!(300), seconds(300)),
            (json!(300.0), seconds(300)),
            (json!(0), seconds(0)),
            (json!("0"), seconds(0)),
            (json!(-1), Some(None)),
            (json!("-1m"), Some(None)),
            (json!(""), None),
        ] {
            assert_eq!(stay(keep.clone()).unwrap(), expected, "{keep}");
        }
        assert!(stay(json!("soon")).is_err());
        assert!(fields(json!({"keep_alive": 0})).model.unloads());
    }

    #[test]
    fn recent_tokens_are_a_number_or_all() {
        let read = |count: Value| recent_tokens(&count, 1024);
        assert_eq!(
            (read(json!(-1)), read(json!(0)), read(json!(64.0))),
            (Some(1024), Some(0), Some(64))
        );
        assert_eq!(
            (read(json!(-2)), read(json!(1.5)), read(json!("64"))),
            (None, None, None)
        );
    }
}
