//! Hybrids as transformers and mlx-lm store them.

use serde_json::{Map, Value, json};

use super::Item;
use crate::{Architecture, ModelConfig};

/// What `config.json` says of recurrent layers, mixtures and the rotated part of a head.
pub(super) fn fields(config: &ModelConfig) -> Value {
    let Some((nets, mixture)) = config.delta_nets.as_ref().zip(config.mixture.as_ref()) else {
        return Value::Null;
    };
    let kinds = (0..config.layers).map(|number| match config.is_recurrent(number) {
        true => "linear_attention",
        false => "full_attention",
    });
    let kinds = Vec::from_iter(kinds);
    let pairs = config.rope_dims / 2;
    json!({
        "full_attention_interval": kinds.iter().position(|kind| *kind == "full_attention").map(|first| first + 1),
        "layer_types": kinds,
        "linear_conv_kernel_dim": nets.taps,
        "linear_key_head_dim": nets.key_dim,
        "linear_num_key_heads": nets.key_heads,
        "linear_num_value_heads": nets.value_heads,
        "linear_value_head_dim": nets.value_dim,
        "moe_intermediate_size": mixture.intermediate_size,
        "num_experts": mixture.experts,
        "num_experts_per_tok": mixture.used,
        "rope_parameters": {
            "mrope_interleaved": true,
            "mrope_section": [pairs - 2 * (pairs / 3), pairs / 3, pairs / 3],
            "partial_rotary_factor": config.rope_dims as f64 / config.head_dim as f64,
            "rope_theta": config.rope_theta,
            "rope_type": "default",
        },
        "shared_expert_intermediate_size": mixture.shared_intermediate_size,
    })
}

/// The text model's `config.json` inside that of the whole model, which is what mlx-lm reads.
pub(super) fn wrapped(mut text: Value) -> Value {
    let mut whole = Map::new();
    if let Some(fields) = text.as_object_mut() {
        for key in ["quantization", "quantization_config"] {
            whole.extend(fields.remove_entry(key));
        }
        whole.extend(
            fields
                .get_key_value("tie_word_embeddings")
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    whole.insert(
        "architectures".to_owned(),
        json!(["Qwen3_5MoeForConditionalGeneration"]),
    );
    whole.insert("model_type".to_owned(), json!("qwen3_5_moe"));
    whole.insert("text_config".to_owned(), text);
    Value::Object(whole)
}

/// Gives an item's parts the names and shapes that transformers, or for quantised weights mlx-lm, has for a
/// hybrid's.
pub(crate) fn published<'a>(config: &ModelConfig, mut item: Item<'a>) -> Item<'a> {
    if config.architecture != Architecture::Qwen3_5Moe {
        return item;
    }
    let mlx = config.quantisation.is_some();
    for part in &mut item.parts {
        if part.name.ends_with("conv1d.weight") {
            // The one channel that each filter sees.
            part.shape.insert(if mlx { part.shape.len() } else { 1 }, 1);
        }
        if mlx {
            part.name = mlx_name(&part.name);
        }
    }
    item
}

fn mlx_name(name: &str) -> String {
    match name.split_once(".mlp.experts.") {
        Some((layer, part)) => {
            let kind = if part.contains('.') { "" } else { ".weight" };
            format!("language_model.{layer}.mlp.switch_mlp.{part}{kind}")
        }
        None => format!("language_model.{name}"),
    }
}
