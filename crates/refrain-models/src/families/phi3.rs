//! Phi-3 (Abdin et al. 2024, arXiv:2404.14219): Llama with fused q, k and v, and fused gate and up projections.

use refrain_formats::{Error, Metadata};
use serde_json::json;

use crate::blocks::{MlpStyle, QkvStyle};
use crate::config::layers::{self, SLIDING_WINDOW};
use crate::config::read::{self, Defaults};
use crate::config::{LayerAttention, LayerRope, MAX_LAYERS, ModelConfig, RopeScaling, write_gguf};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static PHI3: Family = Family {
    name: "phi3",
    class: "Phi3ForCausalLM",
    gguf: Some("phi3"),
    description: "Phi-3",
    keys: Keys {
        supported: &["hidden_act", "sliding_window"],
        supported_in_gguf: &[SLIDING_WINDOW.gguf],
        ..Keys::COMMON
    },
    partial_rotary: true,
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| {
        json!({
            "original_max_position_embeddings": match config.positions.scaling {
                RopeScaling::LongRope { original_max_position, .. } => original_max_position,
                _ => config.max_position,
            },
            "pad_token_id": null,
            "partial_rotary_factor": config.positions.dims as f64 / config.attention.head_dim as f64,
            "sliding_window": config.window(),
        })
    },
    legacy_keys: &["partial_rotary_factor", "original_max_position_embeddings"],
    gguf_metadata: write_gguf::window,
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    qkv: QkvStyle::Fused,
    mlp: MlpStyle::Fused,
    ..TransformerStyle::DEFAULT
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        max_position: 4096,
        longrope_original_max_position: Some(4096.0),
        norm_eps: 1e-5,
        ..Defaults::new(&PHI3)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let window = layers::window(metadata)?;
    if metadata.is_gguf() {
        let all = LayerAttention {
            window,
            rope: LayerRope::Global,
        };
        config.attention.layers = vec![all; config.layers.min(MAX_LAYERS)];
        return Ok(config);
    }
    let local = window.is_some();
    config.attention.layers = layers::windowed_layers(metadata, config.layers, window, LayerRope::Global, |_| local)?;
    if local && !(0..config.layers.min(MAX_LAYERS)).all(|layer| config.layer_attention(layer).window.is_some()) {
        return Err(
            metadata.error("layer_types has layers without a window, but phi3 applies sliding_window to all layers")
        );
    }
    Ok(config)
}
