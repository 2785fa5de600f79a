//! Multi-head latent attention (MLA): projections through low-rank latent vectors.

use refrain::nn::RmsNorm;
use refrain::{Array, concatenate};
use refrain_formats::RowOrder;

use super::{Linear, Norm, Rope};
use crate::config::{AttentionConfig, MlaConfig, ModelConfig};
use crate::tensors::TensorTable;
use crate::{Error, Loader};

/// Epsilon of the latent norms, independent of the model's other norms.
const EPS: f32 = 1e-6;

/// Projections of multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434), in the form with separate keys
/// and values per head. A part of each query and key is rotated; all heads share the rotated part of the key.
pub struct MlaProjections {
    q: MlaQueries,
    /// Projects to the latent vector of keys and values, followed by the rotated part of the keys.
    kv_a: Linear,
    kv_a_norm: Norm,
    /// For each head: rows of the key's unrotated part, then rows of the value.
    kv_b: Linear,
    kv_rank: usize,
    heads: usize,
    /// Query and key values per head, how many of them are rotated, and value values per head.
    head_dim: usize,
    rotated: usize,
    value_dim: usize,
}

enum MlaQueries {
    Full(Linear),
    LowRank(Box<(Linear, Norm, Linear)>),
}

/// Rows of the matrices.
struct MlaWidths {
    queries: usize,
    keys_values: usize,
}

impl MlaWidths {
    fn of(attention: &AttentionConfig, rotated: usize) -> MlaWidths {
        let plain = attention.head_dim.saturating_sub(rotated);
        MlaWidths {
            queries: attention.heads * attention.head_dim,
            keys_values: attention.heads * (plain + attention.value_dim),
        }
    }
}

impl MlaProjections {
    /// Lists the tensors of a layer.
    pub fn tensors(layer: &mut TensorTable, config: &ModelConfig, mla: &MlaConfig) {
        let (hidden, rotated) = (config.hidden_size, config.positions.dims);
        let MlaWidths { queries, keys_values } = MlaWidths::of(&config.attention, rotated);
        let mut linear = |names, shape| layer.linear(names, shape, false, RowOrder::AsStored);
        match mla.q_rank {
            Some(rank) => {
                linear(["self_attn.q_a_proj", "attn_q_a"], [rank, hidden]);
                linear(["self_attn.q_b_proj", "attn_q_b"], [queries, rank]);
            }
            None => linear(["self_attn.q_proj", "attn_q"], [queries, hidden]),
        }
        let both = mla.kv_rank + rotated;
        linear(["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"], [both, hidden]);
        linear(["self_attn.kv_b_proj", "attn_kv_b"], [keys_values, mla.kv_rank]);
        layer.norm(["self_attn.kv_a_layernorm", "attn_kv_a_norm"], mla.kv_rank);
        if let Some(rank) = mla.q_rank {
            layer.norm(["self_attn.q_a_layernorm", "attn_q_a_norm"], rank);
        }
    }

    /// Loads `q_proj`, or `q_a_proj`, `q_a_layernorm` and `q_b_proj`; and `kv_a_proj_with_mqa`, `kv_a_layernorm` and
    /// `kv_b_proj`, all under `{name}`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, mla: &MlaConfig) -> Result<MlaProjections, Error> {
        let config = loader.config;
        let (hidden, rotated) = (config.hidden_size, config.positions.dims);
        let MlaWidths { queries, keys_values } = MlaWidths::of(&config.attention, rotated);
        let project = |part: &str, outputs, inputs| loader.linear(&format!("{name}.{part}"), outputs, inputs, false);
        let norm = |part: &str, rank| {
            let weight = loader.vector(&format!("{name}.{part}.weight"), rank)?;
            Ok::<_, Error>(Norm::Rms(RmsNorm { weight, eps: EPS }))
        };
        let kv_rank = mla.kv_rank;
        Ok(MlaProjections {
            q: match mla.q_rank {
                Some(rank) => MlaQueries::LowRank(Box::new((
                    project("q_a_proj", rank, hidden)?,
                    norm("q_a_layernorm", rank)?,
                    project("q_b_proj", queries, rank)?,
                ))),
                None => MlaQueries::Full(project("q_proj", queries, hidden)?),
            },
            kv_a: project("kv_a_proj_with_mqa", kv_rank + rotated, hidden)?,
            kv_a_norm: norm("kv_a_layernorm", kv_rank)?,
            kv_b: project("kv_b_proj", keys_values, kv_rank)?,
            kv_rank,
            heads: config.attention.heads,
            head_dim: config.attention.head_dim,
            rotated,
            value_dim: config.attention.value_dim,
        })
    }

    /// x `[T, hidden]` → queries and keys `[T, H, Dk]`, rotated to `positions` by `rope`, and values `[T, H, Dv]`.
    /// The rotated part comes first in queries and keys; the order does not change scores.
    pub fn forward(&self, x: &Array, positions: &Array, rope: Option<&Rope>) -> [Array; 3] {
        let plain = self.head_dim - self.rotated;
        let rotate = |rotated: &Array, plain: &Array| {
            let joined = concatenate(&[rotated, plain], -1);
            match rope {
                Some(rope) => rope.forward(&joined, positions),
                None => joined,
            }
        };
        let q = self.split_heads(&self.queries(x), self.head_dim);
        let q = rotate(&q.slice(-1, plain, self.head_dim), &q.slice(-1, 0, plain));
        let latent = self.kv_a.forward(x);
        let shared = latent.slice(-1, self.kv_rank, self.kv_rank + self.rotated);
        let shared = shared
            .expand_dims(1)
            .broadcast_to(&[x.dim(0), self.heads, self.rotated]);
        let latent = self.kv_a_norm.forward(&latent.slice(-1, 0, self.kv_rank));
        let kv = self.split_heads(&self.kv_b.forward(&latent), plain + self.value_dim);
        let k = rotate(&shared, &kv.slice(-1, 0, plain));
        [q, k, kv.slice(-1, plain, plain + self.value_dim)]
    }

    fn queries(&self, x: &Array) -> Array {
        match &self.q {
            MlaQueries::Full(projection) => projection.forward(x),
            MlaQueries::LowRank(projections) => {
                let (a, norm, b) = &**projections;
                b.forward(&norm.forward(&a.forward(x)))
            }
        }
    }

    fn split_heads(&self, x: &Array, size: usize) -> Array {
        x.reshape(&[-1, self.heads as isize, size as isize])
    }
}
