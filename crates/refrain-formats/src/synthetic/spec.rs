//! What `ARCH:FORMAT` stands for: a configuration and a list of tensors.

use std::collections::BTreeMap;

use super::{Random, architectures};
use crate::config::Quantisation;
use crate::tensor::{Storage, TensorInfo};
use crate::{Encoding, Error, Format, ModelConfig};

/// How the weights are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weights {
    F16,
    Q8_0,
    Q4_0,
    Mlx4,
}

/// All formats by name.
pub(super) const FORMATS: [(&str, Weights); 4] = [
    ("f16", Weights::F16),
    ("q8_0", Weights::Q8_0),
    ("q4_0", Weights::Q4_0),
    ("mlx4", Weights::Mlx4),
];

/// MLX's groups, in values.
const MLX_GROUP: u16 = 64;

/// A synthetic checkpoint by its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    architecture: &'static str,
    config: architectures::Config,
    format: &'static str,
    weights: Weights,
}

impl Spec {
    /// Reads `ARCH:FORMAT`.
    pub(crate) fn parse(spec: &str) -> Result<Spec, Error> {
        let error = |reason: String| Error::Synthetic {
            spec: spec.to_owned(),
            reason,
        };
        let Some((architecture, format)) = spec.split_once(':') else {
            return Err(error(format!(
                "must be ARCH:FORMAT, such as qwen3-0.6b:q4_0 (architectures: {}; formats: {})",
                super::architectures().join(", "),
                super::formats().join(", ")
            )));
        };
        let mut known = architectures::ALL.iter();
        let Some((architecture, config)) = known.find(|(name, _)| *name == architecture) else {
            return Err(error(format!(
                "architecture {architecture:?} is not known (known: {})",
                super::architectures().join(", ")
            )));
        };
        let Some((format, weights)) = FORMATS.iter().find(|(name, _)| *name == format) else {
            return Err(error(format!(
                "format {format:?} is not known (known: {})",
                super::formats().join(", ")
            )));
        };
        Ok(Spec {
            architecture,
            config: *config,
            format,
            weights: *weights,
        })
    }

    /// Its name in messages, which is also what the command line calls it.
    pub(crate) fn label(&self) -> String {
        format!("synthetic:{}:{}", self.architecture, self.format)
    }

    /// Its name as that of a model.
    pub(super) fn name(&self) -> String {
        format!("{} (random weights)", self.architecture)
    }

    /// The kind of checkpoint that its format belongs to.
    pub(crate) fn format(&self) -> Format {
        match self.weights {
            Weights::F16 => Format::Safetensors,
            Weights::Q8_0 | Weights::Q4_0 => Format::Gguf,
            Weights::Mlx4 => Format::Mlx,
        }
    }

    /// The model's hyperparameters.
    pub(crate) fn config(&self) -> ModelConfig {
        let mut config = (self.config)();
        if self.weights == Weights::Mlx4 {
            config.quantisation = Some(Quantisation {
                bits: 4,
                group_size: MLX_GROUP,
                overrides: BTreeMap::new(),
            });
        }
        config
    }

    /// How matrices are stored.
    pub(super) fn matrix_encoding(&self) -> Encoding {
        match self.weights {
            Weights::F16 => Encoding::F16,
            Weights::Q8_0 => Encoding::Q8_0,
            Weights::Q4_0 => Encoding::Q4_0,
            Weights::Mlx4 => Encoding::MlxAffine {
                bits: 4,
                group: MLX_GROUP,
            },
        }
    }

    /// How the norms' gains are stored: as converters to each format do it.
    fn vector_encoding(&self) -> Encoding {
        match self.weights {
            Weights::F16 => Encoding::F16,
            Weights::Q8_0 | Weights::Q4_0 => Encoding::F32,
            Weights::Mlx4 => Encoding::BF16,
        }
    }

    /// All tensors, sorted by name.
    pub(crate) fn tensors(&self, config: &ModelConfig) -> Vec<(TensorInfo, Storage)> {
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let encoding = match shape.len() {
                1 => self.vector_encoding(),
                _ => self.matrix_encoding(),
            };
            let random = Random::new(&name, &shape, encoding);
            let info = TensorInfo {
                name,
                shape,
                encoding,
                bytes: random.bytes(),
            };
            (info, Storage::Synthetic(random))
        };
        let mut tensors: Vec<_> = shapes(config).into_iter().map(tensor).collect();
        tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        tensors
    }
}

/// Names and shapes of a model's tensors.
fn shapes(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let hidden = config.hidden_size;
    let queries = config.heads * config.head_dim;
    let keys = config.kv_heads * config.head_dim;
    let mut layer = vec![
        ("input_layernorm", vec![hidden]),
        ("self_attn.q_proj", vec![queries, hidden]),
        ("self_attn.k_proj", vec![keys, hidden]),
        ("self_attn.v_proj", vec![keys, hidden]),
        ("self_attn.o_proj", vec![hidden, queries]),
        ("post_attention_layernorm", vec![hidden]),
        ("mlp.gate_proj", vec![config.intermediate_size, hidden]),
        ("mlp.up_proj", vec![config.intermediate_size, hidden]),
        ("mlp.down_proj", vec![hidden, config.intermediate_size]),
    ];
    if config.architecture == crate::Architecture::Qwen3 {
        layer.push(("self_attn.q_norm", vec![config.head_dim]));
        layer.push(("self_attn.k_norm", vec![config.head_dim]));
    }
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        shapes.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    }
    for number in 0..config.layers {
        let parts = layer.iter();
        shapes.extend(parts.map(|(part, shape)| (format!("model.layers.{number}.{part}.weight"), shape.clone())));
    }
    shapes
}
