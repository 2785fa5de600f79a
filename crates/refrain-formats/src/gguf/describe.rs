//! Describes a GGUF file from its own metadata.

use serde_json::{Value as Json, json};

use super::GgufFiles;
use super::value::GgufValue;
use crate::{Description, Format, TensorInfo};

/// Returns scalar metadata (without the tokenizer's) and the tensors.
pub(crate) fn describe(opened: GgufFiles) -> Description {
    let gguf = opened.gguf;
    let settings = gguf.metadata.values.iter();
    let settings = settings.filter(|(key, _)| !key.starts_with("tokenizer."));
    let tensors = gguf.tensors.iter().map(|entry| TensorInfo {
        name: entry.name.clone(),
        shape: entry.shape.clone(),
        encoding: entry.encoding,
        bytes: entry.range.len() as u64,
    });
    Description {
        format: Format::Gguf,
        architecture: gguf
            .metadata
            .string("general.architecture")
            .ok()
            .flatten()
            .map(str::to_owned),
        settings: settings
            .filter_map(|(key, value)| Some((key.clone(), as_json(value)?)))
            .collect(),
        tensors: tensors.collect(),
    }
}

fn as_json(value: &GgufValue) -> Option<Json> {
    Some(match value {
        GgufValue::Integer(number) => json!(i64::try_from(*number).ok()?),
        GgufValue::Float(number) => json!(number),
        GgufValue::Bool(flag) => json!(flag),
        GgufValue::String(text) => json!(text),
        GgufValue::Array { .. } => return None,
    })
}
