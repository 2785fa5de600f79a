//! Shows the metadata of a model that is not supported.

use refrain_formats::{Description, TensorInfo};
use serde_json::{Map, Value, json};

use super::{format_name, table, tensor_json};
use crate::output::{human_bytes, human_count};

/// Number of stored values, and bytes.
fn sums(description: &Description) -> (u64, u64) {
    let values = description.tensors.iter().map(|tensor| tensor.values() as u64).sum();
    let bytes = description.tensors.iter().map(|tensor| tensor.bytes).sum();
    (values, bytes)
}

pub(super) fn as_text(description: &Description, all: bool) -> String {
    let (values, bytes) = sums(description);
    let mut lines = vec![
        (
            "architecture".to_owned(),
            description.architecture.clone().unwrap_or_else(|| "unknown".to_owned()),
        ),
        ("format".to_owned(), format_name(description.format).to_owned()),
        (
            "weights".to_owned(),
            format!(
                "{} in {} tensors, {} stored values",
                human_bytes(bytes),
                description.tensors.len(),
                human_count(values)
            ),
        ),
    ];
    let settings = description.settings.iter();
    lines.extend(settings.map(|(key, value)| (key.clone(), shortened(value))));
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let lines = lines.iter().map(|(key, value)| format!("{key:<width$} {value}\n"));
    lines.collect::<String>() + &table(description.tensors.iter(), all)
}

/// Formats a value in one line, shortened if it is long.
fn shortened(value: &Value) -> String {
    const MAX_CHARS: usize = 100;
    let text = match value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

pub(super) fn as_json(description: &Description, error: &anyhow::Error) -> Value {
    let (_, bytes) = sums(description);
    json!({
        "error": format!("{error:#}"),
        "architecture": description.architecture,
        "format": format_name(description.format),
        "weight_bytes": bytes,
        "settings": description.settings.iter().cloned().collect::<Map<_, _>>(),
        "tensors": description.tensors.iter().map(|tensor: &TensorInfo| tensor_json(tensor)).collect::<Vec<_>>(),
    })
}
