//! Reads MLX's quantisation from `config.json`.

use std::collections::{BTreeMap, BTreeSet};

use refrain_quant::QuantFormat;
use serde_json::Value;

use crate::config::{LayerFormat, Quantisation};
use crate::files::{JsonObject, json_kind};
use crate::small_floats::SmallFloats;
use crate::{Error, Metadata};

/// Parses MLX's `quantization` object. Other quantisation methods are errors that name the method.
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
        // gpt-oss: tensor names identify the quantised tensors.
        if method == "mxfp4" {
            return Ok(None);
        }
        return Err(metadata.unsupported(format!(
            "weights quantised by {method:?} are not supported (supported: MLX's \
             quantisation, \"mxfp4\", and GGUF files)"
        )));
    }
    for key in ["bits", "group_size"] {
        if !object.contains_key(key) {
            return Err(metadata.error(format!("quantization of the model lacks {key}")));
        }
    }
    let format = settings(metadata, object, "the model")?;
    let mut overrides = BTreeMap::new();
    for (key, value) in object {
        let own = match value {
            Value::Bool(false) => None,
            Value::Object(own) => Some(settings(metadata, own, key)?),
            _ => continue,
        };
        overrides.insert(key.clone(), own);
    }
    Ok(Some(Quantisation { format, overrides }))
}

/// Finds the format with the object's `mode`, `bits` and `group_size`. A null or missing value is MLX's default.
fn settings(metadata: &Metadata<'_>, object: &JsonObject, what: &str) -> Result<LayerFormat, Error> {
    let given = |key: &str| object.get(key).filter(|value| !value.is_null());
    let floats = SmallFloats::ALL.map(SmallFloats::mode);
    let modes = refrain_quant::records().filter_map(|record| record.mode);
    let modes = BTreeSet::from_iter(modes.chain(floats));
    if given("global_scale").is_some_and(|value| value != &Value::Bool(false)) {
        return Err(metadata.unsupported(format!("quantization of {what} with a global_scale is not supported")));
    }
    let mode = match given("mode") {
        None => "affine",
        Some(mode) => *modes.iter().find(|known| mode.as_str() == Some(known)).ok_or_else(|| {
            let known = Vec::from_iter(modes.iter().map(|mode| format!("{mode:?}"))).join(", ");
            metadata.unsupported(format!(
                "quantization mode {mode} of {what} is not supported (supported: {known})"
            ))
        })?,
    };
    if let Some(floats) = SmallFloats::ALL.into_iter().find(|floats| floats.mode() == mode) {
        for (key, only) in [("bits", floats.bits()), ("group_size", floats.group())] {
            if let Some(value) = given(key).filter(|value| value.as_u64() != Some(only.into())) {
                return Err(metadata.unsupported(format!(
                    "quantization {key} {value} of {what} is not supported for {mode} (supported: {only})"
                )));
            }
        }
        return Ok(LayerFormat::Floats(floats));
    }
    let records = || refrain_quant::records().filter(|record| record.mode == Some(mode));
    let choose = |key: &str, default: u64, of: fn(&QuantFormat) -> u32| {
        let supported = BTreeSet::from_iter(records().map(|record| u64::from(of(&record.format))));
        let Some(value) = given(key) else {
            // MLX's default, or the only supported value.
            return Ok(*supported.get(&default).or(supported.first()).unwrap_or(&default));
        };
        value.as_u64().filter(|value| supported.contains(value)).ok_or_else(|| {
            metadata.unsupported(format!(
                "quantization {key} {value} of {what} is not supported (supported: {:?})",
                Vec::from_iter(&supported)
            ))
        })
    };
    let bits = choose("bits", 4, |format| format.bits)?;
    let group = choose("group_size", 64, |format| format.group)?;
    let fits = |format: QuantFormat| [format.bits, format.group].map(u64::from) == [bits, group];
    let found = records().find(|record| fits(record.format));
    found.map(LayerFormat::Quantised).ok_or_else(|| {
        metadata.unsupported(format!(
            "quantization of {what} in {bits} bits and groups of {group} is not supported"
        ))
    })
}
