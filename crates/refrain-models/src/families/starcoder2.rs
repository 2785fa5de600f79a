//! StarCoder2 (Lozhkov et al. 2024, arXiv:2402.19173): LayerNorms, biases in all projections, and an MLP without a
//! gate.

use refrain_formats::{Error, Key, Metadata};
use serde_json::json;

use crate::blocks::{MlpStyle, NormKind};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{Activation, LayerAttention, LayerRope, ModelConfig, layers};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static STARCODER2: Family = Family {
    name: "starcoder2",
    class: "Starcoder2ForCausalLM",
    gguf: Some("starcoder2"),
    description: "StarCoder2",
    keys: Keys {
        supported: &["hidden_act", "norm_epsilon", "sliding_window", "use_bias"],
        ignored: &[
            "attention_bias",
            "embedding_dropout",
            "residual_dropout",
            "rms_norm_eps",
        ],
        ..Keys::COMMON
    },
    eps: Key::new("norm_epsilon", "attention.layer_norm_epsilon"),
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| {
        json!({
            "hidden_act": match config.feed_forward.activation {
                Activation::Silu => "silu",
                Activation::GeluTanh | Activation::ClampedSwiglu => "gelu_pytorch_tanh",
            },
            "sliding_window": config.window(),
            "use_bias": config.attention.bias,
        })
    },
    presets: &[
        ("starcoder2-3b", || sized([3072, 12288, 30, 24, 2], true)),
        ("starcoder2-7b", || sized([4608, 18432, 32, 36, 4], false)),
    ],
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    norm: NormKind::Layer,
    mlp: MlpStyle::Plain,
    ..TransformerStyle::DEFAULT
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = metadata.flag(Key::json("use_bias"))?.unwrap_or(true);
    let defaults = Defaults {
        heads: Some(24),
        kv_heads: Some(2),
        vocab_size: Some(49_152),
        max_position: 4096,
        norm_eps: 1e-5,
        tie_word_embeddings: true,
        activation: Activation::GeluTanh,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: bias,
        },
        ..Defaults::new(&STARCODER2)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    if metadata.is_gguf() {
        // The MLP has no gate whose bias could be looked up. GGUF files do not store the window.
        config.feed_forward.bias = metadata.tensor_shape("blk.0.ffn_up.bias").is_some();
        return Ok(config);
    }
    let window = layers::window(metadata)?;
    let local = window.is_some();
    config.attention.layers = layers::windowed_layers(metadata, config.layers, window, LayerRope::Global, |_| local)?;
    Ok(config)
}

fn sized(sizes: [usize; 5], tied: bool) -> ModelConfig {
    let window = LayerAttention {
        window: Some(4096),
        rope: LayerRope::Global,
    };
    let mut config = ModelConfig::from_sizes(&STARCODER2, sizes, 128);
    config.vocab_size = 49_152;
    config.norm.eps = 1e-5;
    config.positions.theta = 1e6;
    config.positions.local_theta = 1e6;
    config.max_position = 16_384;
    config.tie_word_embeddings = tied;
    config.attention.bias = true;
    config.attention.output_bias = true;
    config.feed_forward.bias = true;
    config.feed_forward.activation = Activation::GeluTanh;
    config.attention.layers = vec![window; sizes[2]];
    config.bos_ids = vec![0];
    config.eos_ids = vec![0];
    config
}
