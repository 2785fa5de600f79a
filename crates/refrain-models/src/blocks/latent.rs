use refrain::nn::RmsNorm;
use refrain::{Array, concatenate};
use refrain_formats::RowOrder;

use super::{BlockNorm, Linear, Rope};
use crate::config::{AttentionConfig, LatentConfig, ModelConfig};
use crate::tensors::Table;
use crate::{Error, Loader};

/// Added to the mean square in the norms of latent vectors, whatever the other norms of a model have.
const EPS: f32 = 1e-6;

/// Queries, keys and values made of a latent vector of each token (DeepSeek-AI 2024, arXiv:2405.04434), in the form in
/// which every head has keys and values of its own. A part of each query and key is rotated; of keys all heads share it.
pub struct LatentProjections {
    q: LatentQueries,
    /// To the latent vector of keys and values, and behind it the rotated part of the keys.
    kv_a: Linear,
    kv_a_norm: BlockNorm,
    /// For each head the rows of the key that are not rotated, then those of the value.
    kv_b: Linear,
    kv_rank: usize,
    heads: usize,
    /// Values of a head of queries and keys, of those that are rotated, and of a head of values.
    head_dim: usize,
    rotated: usize,
    value_dim: usize,
}

enum LatentQueries {
    Whole(Linear),
    Latent(Box<(Linear, BlockNorm, Linear)>),
}

/// Rows of the matrices.
struct LatentWidths {
    queries: usize,
    keys_values: usize,
}

impl LatentWidths {
    fn of(attention: &AttentionConfig, rotated: usize) -> LatentWidths {
        let plain = attention.head_dim.saturating_sub(rotated);
        LatentWidths {
            queries: attention.heads * attention.head_dim,
            keys_values: attention.heads * (plain + attention.value_dim),
        }
    }
}

impl LatentProjections {
    /// Their tensors in a layer.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, latent: &LatentConfig) {
        let (hidden, rotated) = (config.hidden_size, config.positions.dims);
        let LatentWidths { queries, keys_values } = LatentWidths::of(&config.attention, rotated);
        let mut linear = |names, shape| layer.linear(names, shape, false, RowOrder::AsStored);
        match latent.q_rank {
            Some(rank) => {
                linear(["self_attn.q_a_proj", "attn_q_a"], [rank, hidden]);
                linear(["self_attn.q_b_proj", "attn_q_b"], [queries, rank]);
            }
            None => linear(["self_attn.q_proj", "attn_q"], [queries, hidden]),
        }
        let both = latent.kv_rank + rotated;
        linear(["self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"], [both, hidden]);
        linear(["self_attn.kv_b_proj", "attn_kv_b"], [keys_values, latent.kv_rank]);
        layer.norm(["self_attn.kv_a_layernorm", "attn_kv_a_norm"], latent.kv_rank);
        if let Some(rank) = latent.q_rank {
            layer.norm(["self_attn.q_a_layernorm", "attn_q_a_norm"], rank);
        }
    }

    /// `q_proj`, or `q_a_proj`, `q_a_layernorm` and `q_b_proj`; `kv_a_proj_with_mqa`, `kv_a_layernorm` and `kv_b_proj`:
    /// all under `{name}`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, latent: &LatentConfig) -> Result<LatentProjections, Error> {
        let config = loader.config;
        let (hidden, rotated) = (config.hidden_size, config.positions.dims);
        let LatentWidths { queries, keys_values } = LatentWidths::of(&config.attention, rotated);
        let project = |part: &str, outputs, inputs| loader.linear(&format!("{name}.{part}"), outputs, inputs, false);
        let norm = |part: &str, rank| {
            let weight = loader.vector(&format!("{name}.{part}.weight"), rank)?;
            Ok::<_, Error>(BlockNorm::Rms(RmsNorm { weight, eps: EPS }))
        };
        let kv_rank = latent.kv_rank;
        Ok(LatentProjections {
            q: match latent.q_rank {
                Some(rank) => LatentQueries::Latent(Box::new((
                    project("q_a_proj", rank, hidden)?,
                    norm("q_a_layernorm", rank)?,
                    project("q_b_proj", queries, rank)?,
                ))),
                None => LatentQueries::Whole(project("q_proj", queries, hidden)?),
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

    /// x `[T, hidden]` → queries and keys `[T, H, Dk]`, rotated to `positions` if by `rope`, and values `[T, H, Dv]`. In
    /// queries and keys the rotated part stands first: scores do not tell.
    pub fn forward(&self, x: &Array, positions: &Array, rope: Option<&Rope>) -> [Array; 3] {
        let plain = self.head_dim - self.rotated;
        let turned = |rotated: &Array, plain: &Array| {
            let whole = concatenate(&[rotated, plain], -1);
            match rope {
                Some(rope) => rope.forward(&whole, positions),
                None => whole,
            }
        };
        let q = self.heads_of(&self.queries(x), self.head_dim);
        let q = turned(&q.slice(-1, plain, self.head_dim), &q.slice(-1, 0, plain));
        let latent = self.kv_a.forward(x);
        let shared = latent.slice(-1, self.kv_rank, self.kv_rank + self.rotated);
        let shared = shared
            .expand_dims(1)
            .broadcast_to(&[x.dim(0), self.heads, self.rotated]);
        let latent = self.kv_a_norm.forward(&latent.slice(-1, 0, self.kv_rank));
        let kv = self.heads_of(&self.kv_b.forward(&latent), plain + self.value_dim);
        let k = turned(&shared, &kv.slice(-1, 0, plain));
        [q, k, kv.slice(-1, plain, plain + self.value_dim)]
    }

    fn queries(&self, x: &Array) -> Array {
        match &self.q {
            LatentQueries::Whole(projection) => projection.forward(x),
            LatentQueries::Latent(projections) => {
                let (a, norm, b) = &**projections;
                b.forward(&norm.forward(&a.forward(x)))
            }
        }
    }

    fn heads_of(&self, x: &Array, size: usize) -> Array {
        x.reshape(&[-1, self.heads as isize, size as isize])
    }
}
