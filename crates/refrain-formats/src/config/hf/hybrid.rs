//! The sizes of recurrent layers and mixtures in `config.json`.

use serde_json::Value;

use super::{ConfigReader, families};
use crate::Error;
use crate::config::{Architecture, DeltaNets, MAX_LAYERS, MixtureConfig};

/// The gated delta nets of families that have them; defaults are those of transformers.
pub(super) fn delta_nets(
    reader: &ConfigReader<'_>,
    architecture: Architecture,
    layers: usize,
) -> Result<Option<DeltaNets>, Error> {
    if architecture != Architecture::Qwen3_5Moe {
        return Ok(None);
    }
    let count = |key: &str, default: usize| Ok::<_, Error>(reader.count(key)?.unwrap_or(default));
    Ok(Some(DeltaNets {
        key_heads: count("linear_num_key_heads", 16)?,
        value_heads: count("linear_num_value_heads", 32)?,
        key_dim: count("linear_key_head_dim", 128)?,
        value_dim: count("linear_value_head_dim", 128)?,
        taps: count("linear_conv_kernel_dim", 4)?,
        layers: recurrent_layers(reader, layers.min(MAX_LAYERS))?,
    }))
}

/// Which layers are gated delta nets: those that `layer_types` says, or all but each
/// `full_attention_interval`th.
fn recurrent_layers(reader: &ConfigReader<'_>, layers: usize) -> Result<Vec<bool>, Error> {
    let Some(value) = reader.value("layer_types") else {
        let interval = reader.count("full_attention_interval")?.unwrap_or(4);
        return Ok((1..=layers).map(|number| !number.is_multiple_of(interval)).collect());
    };
    let kinds = families::list(reader, "layer_types", value, layers)?;
    let recurrent = |kind: &Value| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(reader.unsupported(format!(
            "layers of type {kind} are not supported (supported: \"linear_attention\", \"full_attention\")"
        ))),
    };
    kinds.iter().take(layers).map(recurrent).collect()
}

/// The mixture of experts of families that have one.
pub(super) fn mixture(reader: &ConfigReader<'_>, architecture: Architecture) -> Result<Option<MixtureConfig>, Error> {
    if architecture != Architecture::Qwen3_5Moe {
        return Ok(None);
    }
    let count = |key: &str, default: usize| Ok::<_, Error>(reader.count(key)?.unwrap_or(default));
    Ok(Some(MixtureConfig {
        experts: count("num_experts", 256)?,
        used: count("num_experts_per_tok", 8)?,
        intermediate_size: count("moe_intermediate_size", 512)?,
        shared_intermediate_size: count("shared_expert_intermediate_size", 512)?,
    }))
}
