//! `GET /v1/models` as Anthropic's clients expect it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::served::ServedModel;

/// Returns a model in Anthropic's form.
pub(crate) fn described(name: &str, model: &ServedModel) -> Value {
    let created = i64::try_from(model.since)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    json!({
        "id": name,
        "type": "model",
        "display_name": name,
        "created_at": created.unwrap_or(Timestamp::UNIX_EPOCH).to_string(),
        "lifecycle": "active",
        "max_input_tokens": model.context,
        "max_tokens": model.max_new_tokens.unwrap_or(model.context),
    })
}

/// Returns models as a list, which has one page.
pub(crate) fn list(models: Vec<Value>) -> Value {
    let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
    json!({"first_id": id(models.first()), "last_id": id(models.last()), "has_more": false, "data": models})
}
