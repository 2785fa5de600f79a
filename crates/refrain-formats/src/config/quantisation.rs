//! What `config.json` says of MLX's quantisation.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::Quantisation;
use crate::files::{JsonObject, json_kind};
use crate::{Error, Metadata};

/// MLX's `quantization` object. Other ways to quantise are refused by name.
pub(crate) fn read(metadata: &Metadata<'_>) -> Result<Option<Quantisation>, Error> {
    let object = match (metadata.json("quantization"), metadata.json("quantization_config")) {
        (Some(Value::Object(object)), _) => object,
        (None, Some(Value::Object(object))) => object,
        (None, None) => return Ok(None),
        (Some(other), _) | (None, Some(other)) => {
            return Err(metadata.error(format!("quantization is a {}, not an object", json_kind(other))));
        }
    };
    if let Some(method) = object.get("quant_method").and_then(Value::as_str) {
        return Err(metadata.unsupported(format!(
            "weights quantised by {method:?} are not supported (supported: MLX's affine \
             quantisation, and GGUF files)"
        )));
    }
    for key in ["bits", "group_size"] {
        if !object.contains_key(key) {
            return Err(metadata.error(format!("quantization of the model lacks {key}")));
        }
    }
    let (bits, group_size) = settings(metadata, object, "the model")?;
    let mut overrides = BTreeMap::new();
    for (key, value) in object {
        let own = match value {
            Value::Bool(false) => None,
            Value::Object(own) => Some(settings(metadata, own, key)?),
            _ => continue,
        };
        overrides.insert(key.clone(), own);
    }
    Ok(Some(Quantisation {
        bits,
        group_size,
        overrides,
    }))
}

/// The `bits` and `group_size` of an object, checked to be ones that are supported. What is null, or missing from a
/// layer's own, is MLX's default.
fn settings(metadata: &Metadata<'_>, object: &JsonObject, what: &str) -> Result<(u8, u16), Error> {
    let given = |key: &str| object.get(key).filter(|value| !value.is_null());
    if let Some(mode) = given("mode").filter(|mode| mode.as_str() != Some("affine")) {
        return Err(metadata.unsupported(format!(
            "quantization mode {mode} of {what} is not supported (supported: \"affine\")"
        )));
    }
    let choose = |key: &str, default: u64, supported: &[u64]| {
        let Some(value) = given(key) else {
            return Ok(default);
        };
        value.as_u64().filter(|value| supported.contains(value)).ok_or_else(|| {
            metadata.unsupported(format!(
                "quantization {key} {value} of {what} is not supported (supported: {supported:?})"
            ))
        })
    };
    Ok((
        choose("bits", 4, &[2, 3, 4, 5, 6, 8])? as u8,
        choose("group_size", 64, &[32, 64, 128])? as u16,
    ))
}
