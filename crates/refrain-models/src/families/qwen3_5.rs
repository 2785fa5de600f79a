//! Qwen3.5 (Qwen team 2026), the structure of Qwen3-Next (2025): gated delta nets, gated attention in every fourth layer,
//! and in each a feed-forward network or a mixture of experts.

use refrain::{Array, DType};
use refrain_formats::{Error as FileError, Key, Metadata, RowOrder};
use serde_json::{Value, json};

use crate::blocks::{
    Attention, AttentionStyle, BlockNorm, DeltaNet, Embedding, FeedForward, Head, MlpStyle, QkNorm, QkvStyle, Ropes,
};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{DeltaNets, MAX_LAYERS, MixtureConfig, MixtureStyle, ModelConfig, RouterConfig};
use crate::family::{Family, Keys};
use crate::tensors::{Table, TensorRow};
use crate::{Batch, Decoder, Error, LayerState, Loader, Pages};

pub(super) static QWEN3_5: Family = Family {
    name: "qwen3_5_text",
    // mlx-lm takes the name of the whole model for that of its text decoder.
    also: &["qwen3_5"],
    class: "Qwen3_5ForCausalLM",
    about: "Qwen3.5, dense, its text decoder",
    keys: Keys {
        followed: &[
            "attention_bias",
            "full_attention_interval",
            "hidden_act",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
        ],
        ..Keys::COMMON
    },
    whole: Some(["Qwen3_5ForConditionalGeneration", "qwen3_5"]),
    read: |metadata| read(metadata, &QWEN3_5, 4, None),
    sizes: &[("tiny-hybrid-dense", tiny_dense), ("qwen3.5-9b", dense_9b)],
    ..HYBRID
};

pub(super) static QWEN3_5_MOE: Family = Family {
    name: "qwen3_5_moe_text",
    also: &["qwen3_5_moe"],
    class: "Qwen3_5MoeForCausalLM",
    about: "Qwen3.5's mixtures of experts (and those that followed in their structure), their text decoder",
    keys: Keys {
        followed: &[
            "attention_bias",
            "full_attention_interval",
            "hidden_act",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
            "moe_intermediate_size",
            "num_experts",
            "num_experts_per_tok",
            "shared_expert_intermediate_size",
        ],
        // Only mixtures have feed-forward networks.
        without_effect: &["intermediate_size"],
        ..Keys::COMMON
    },
    whole: Some(["Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"]),
    read: |metadata| read(metadata, &QWEN3_5_MOE, 2, Some(mixture(metadata)?)),
    sizes: &[("tiny-hybrid", tiny), ("qwen3.5-35b-a3b", a3b_35b)],
    ..HYBRID
};

const ATTENTION: AttentionStyle = AttentionStyle {
    qk_norm: QkNorm::Heads,
    qkv: QkvStyle::Gated,
    sinks: false,
};

const HYBRID: Family = Family {
    rotates_part: true,
    tensors,
    build: |loader| Ok(Box::new(Qwen3_5::load(loader)?)),
    config_json,
    converts: false,
    ..Family::DENSE
};

fn read(
    metadata: &Metadata<'_>,
    family: &'static Family,
    kv_heads: usize,
    mixture: Option<MixtureConfig>,
) -> Result<ModelConfig, FileError> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        head_dim: Some(256),
        kv_heads: Some(kv_heads),
        rotated: 0.25,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::of(family)
    };
    let inner = mixture.as_ref().map(|mixture| mixture.intermediate_size);
    let config = read::decoder(metadata, &defaults, inner)?;
    let count = |key, usual| count(metadata, key, usual);
    Ok(ModelConfig {
        norm_offset: 1.0,
        delta_nets: Some(DeltaNets {
            key_heads: count("linear_num_key_heads", 16)?,
            value_heads: count("linear_num_value_heads", 32)?,
            key_dim: count("linear_key_head_dim", 128)?,
            value_dim: count("linear_value_head_dim", 128)?,
            taps: count("linear_conv_kernel_dim", 4)?,
            layers: recurrent_layers(metadata, config.layers.min(MAX_LAYERS))?,
        }),
        mixture,
        ..config
    })
}

fn mixture(metadata: &Metadata<'_>) -> Result<MixtureConfig, FileError> {
    let count = |key, usual| count(metadata, key, usual);
    Ok(MixtureConfig {
        experts: count("num_experts", 256)?,
        router: RouterConfig {
            used: count("num_experts_per_tok", 8)?,
            renormalise: true,
        },
        intermediate_size: count("moe_intermediate_size", 512)?,
        shared_intermediate_size: Some(count("shared_expert_intermediate_size", 512)?),
        style: &MixtureStyle::USUAL,
    })
}

fn count(metadata: &Metadata<'_>, key: &'static str, usual: usize) -> Result<usize, FileError> {
    Ok(metadata.count(Key::json(key))?.unwrap_or(usual))
}

/// Which layers are gated delta nets: those that `layer_types` says, or all but each `full_attention_interval`th.
fn recurrent_layers(metadata: &Metadata<'_>, layers: usize) -> Result<Vec<bool>, FileError> {
    let Some(kinds) = metadata.for_layers("layer_types", layers)? else {
        let interval = metadata.count(Key::json("full_attention_interval"))?.unwrap_or(4);
        return Ok(all_but_each(interval, layers));
    };
    let recurrent = |kind: &Value| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(metadata.unsupported(format!(
            "layers of type {kind} are not supported (supported: \"linear_attention\", \"full_attention\")"
        ))),
    };
    kinds.iter().take(layers).map(recurrent).collect()
}

fn all_but_each(interval: usize, layers: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(interval)).collect()
}

/// What `config.json` says of recurrent layers, mixtures and the rotated part of a head.
fn config_json(config: &ModelConfig) -> Value {
    let Some(nets) = &config.delta_nets else {
        return Value::Null;
    };
    let kinds = (0..config.layers).map(|number| match config.is_recurrent(number) {
        true => "linear_attention",
        false => "full_attention",
    });
    let kinds = Vec::from_iter(kinds);
    let pairs = config.rope_dims / 2;
    let mut fields = json!({
        "full_attention_interval": kinds.iter().position(|kind| *kind == "full_attention").map(|first| first + 1),
        "layer_types": kinds,
        "linear_conv_kernel_dim": nets.taps,
        "linear_key_head_dim": nets.key_dim,
        "linear_num_key_heads": nets.key_heads,
        "linear_num_value_heads": nets.value_heads,
        "linear_value_head_dim": nets.value_dim,
        "rope_parameters": {
            "mrope_interleaved": true,
            "mrope_section": [pairs - 2 * (pairs / 3), pairs / 3, pairs / 3],
            "partial_rotary_factor": config.rope_dims as f64 / config.head_dim as f64,
            "rope_theta": config.rope_theta,
            "rope_type": "default",
        },
    });
    if let Some(mixture) = &config.mixture {
        fields["moe_intermediate_size"] = json!(mixture.intermediate_size);
        fields["num_experts"] = json!(mixture.experts);
        fields["num_experts_per_tok"] = json!(mixture.router.used);
        fields["shared_expert_intermediate_size"] = json!(mixture.shared_intermediate_size);
    }
    fields
}

fn tensors(config: &ModelConfig) -> Vec<TensorRow> {
    let mut table = Table::new(config);
    let Some(nets) = &config.delta_nets else {
        return table.rows();
    };
    for number in 0..config.layers.min(MAX_LAYERS) {
        let layer = table.layer(number);
        layer.norm(["input_layernorm", "attn_norm"], config.hidden_size);
        layer.norm(["post_attention_layernorm", "post_attention_norm"], config.hidden_size);
        match config.is_recurrent(number) {
            true => DeltaNet::tensors(layer, config, nets),
            false => Attention::tensors(layer, config, ATTENTION, RowOrder::AsStored),
        }
        FeedForward::tensors(layer, config, MlpStyle::Gated);
    }
    table.rows()
}

/// Qwen3.5-9B.
fn dense_9b() -> ModelConfig {
    ModelConfig {
        mixture: None,
        delta_nets: Some(nets_of_128(32)),
        ..ModelConfig {
            family: &QWEN3_5,
            hidden_size: 4096,
            intermediate_size: 12288,
            layers: 32,
            kv_heads: 4,
            ..a3b_35b()
        }
    }
}

/// Those of published models, of heads of 128, in so many layers.
fn nets_of_128(layers: usize) -> DeltaNets {
    DeltaNets {
        key_heads: 16,
        value_heads: 32,
        key_dim: 128,
        value_dim: 128,
        taps: 4,
        layers: all_but_each(4, layers),
    }
}

/// The dense one's structure at a size for tests.
fn tiny_dense() -> ModelConfig {
    ModelConfig {
        family: &QWEN3_5,
        intermediate_size: 512,
        mixture: None,
        ..tiny()
    }
}

/// Qwen3.5-35B-A3B.
fn a3b_35b() -> ModelConfig {
    ModelConfig {
        vocab_size: 248_320,
        rope_theta: 1e7,
        local_rope_theta: 1e7,
        rope_dims: 64,
        max_position: 262_144,
        norm_offset: 1.0,
        delta_nets: Some(nets_of_128(40)),
        mixture: Some(MixtureConfig {
            experts: 256,
            router: RouterConfig {
                used: 8,
                renormalise: true,
            },
            intermediate_size: 512,
            shared_intermediate_size: Some(512),
            style: &MixtureStyle::USUAL,
        }),
        bos_ids: vec![248_044],
        eos_ids: vec![248_046],
        ..ModelConfig::of_sizes(&QWEN3_5_MOE, [2048, 512, 40, 16, 2], 256)
    }
}

/// Its structure at a size for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    ModelConfig {
        vocab_size: 997,
        rope_theta: 1e7,
        local_rope_theta: 1e7,
        rope_dims: 16,
        max_position: 4096,
        norm_offset: 1.0,
        delta_nets: Some(DeltaNets {
            key_heads: 2,
            value_heads: 4,
            key_dim: 64,
            value_dim: 64,
            taps: 4,
            layers: all_but_each(4, 4),
        }),
        mixture: Some(MixtureConfig {
            experts: 8,
            router: RouterConfig {
                used: 2,
                renormalise: true,
            },
            intermediate_size: 256,
            shared_intermediate_size: Some(256),
            style: &MixtureStyle::USUAL,
        }),
        bos_ids: vec![1],
        eos_ids: vec![2],
        ..ModelConfig::of_sizes(&QWEN3_5_MOE, [256, 256, 4, 4, 2], 64)
    }
}

/// The decoder.
struct Qwen3_5 {
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: BlockNorm,
    head: Head,
    ropes: Ropes,
}

struct Layer {
    before_mixer: BlockNorm,
    mixer: Mixer,
    before_feed_forward: BlockNorm,
    feed_forward: FeedForward,
}

/// What lets tokens see those before them.
enum Mixer {
    Delta(Box<DeltaNet>),
    Attention(Box<Attention>),
}

impl Qwen3_5 {
    /// Loads the weights under Hugging Face's names.
    pub fn load(loader: &Loader<'_>) -> Result<Qwen3_5, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = Head::load(loader, &embedding)?;
        Ok(Qwen3_5 {
            layers: (0..config.layers)
                .map(|number| Layer::load(loader, number))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("model.norm", config.hidden_size)?,
            ropes: Ropes::new(config, loader.device),
            embedding,
            head,
        })
    }
}

impl Layer {
    fn load(loader: &Loader<'_>, number: usize) -> Result<Layer, Error> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let config = loader.config;
        let norm = |part: &str| loader.norm(&name(part), config.hidden_size);
        Ok(Layer {
            before_mixer: norm("input_layernorm")?,
            mixer: match config.delta_nets.as_ref().filter(|_| config.is_recurrent(number)) {
                Some(nets) => Mixer::Delta(Box::new(DeltaNet::load(loader, &name("linear_attn"), nets)?)),
                None => Mixer::Attention(Box::new(Attention::load(
                    loader,
                    &name("self_attn"),
                    number,
                    ATTENTION,
                )?)),
            },
            before_feed_forward: norm("post_attention_layernorm")?,
            feed_forward: FeedForward::load(loader, &format!("model.layers.{number}"), MlpStyle::Gated)?,
        })
    }
}

impl Decoder for Qwen3_5 {
    fn new_states(&self, dtype: DType, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error> {
        let slots = pages.positions() * sequences;
        let state = |layer: &Layer| match &layer.mixer {
            Mixer::Delta(net) => Ok(LayerState::Recurrent(net.new_state(sequences)?)),
            Mixer::Attention(attention) => Ok(LayerState::Attention(attention.new_cache(dtype, slots)?)),
        };
        self.layers.iter().map(state).collect()
    }

    fn forward(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        let slots = batch.slots();
        let ropes = self.ropes.within(batch.context);
        let mut x = self.embedding.forward(&batch.tokens);
        for (layer, state) in self.layers.iter().zip(states) {
            let read = layer.before_mixer.forward(&x);
            x = &x
                + match &layer.mixer {
                    Mixer::Delta(net) => net.forward(&read, batch, state.recurrence()),
                    Mixer::Attention(attention) => attention.forward(&read, batch, &slots, &ropes, state.cache()),
                };
            x = &x + layer.feed_forward.forward(&layer.before_feed_forward.forward(&x));
        }
        self.head.forward(&self.norm.forward(&batch.wanted_rows(&x)))
    }
}
