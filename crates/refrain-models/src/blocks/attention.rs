use refrain::{Array, DType};
use refrain_formats::RowOrder;
use refrain_lm::{AttentionParams, paged_attention, paged_attention_with_sinks};

use super::{BlockNorm, LatentProjections, Linear, Rope, Ropes};
use crate::config::{AttentionConfig, LayerRope, ModelConfig};
use crate::tensors::Table;
use crate::{Batch, Cache, Error, Loader};

/// What of the queries and keys is normalised, before they are rotated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// Nothing.
    None,
    /// Each head by itself.
    Heads,
    /// All heads of a token together.
    Projection,
    /// Each head by itself less its mean, with weights of its own.
    EachHead,
}

/// What sets one family's attention apart from another's.
#[derive(Clone, Copy)]
pub struct AttentionStyle {
    /// The norms of queries and keys.
    pub qk_norm: QkNorm,
    /// How queries, keys and values are projected.
    pub qkv: QkvStyle,
    /// Whether the softmax of each head is also over a score that was learned, whose value is zero (Xiao et al. 2023,
    /// arXiv:2309.17453).
    pub sinks: bool,
}

/// Grouped-query attention (Ainslie et al. 2023) over a paged cache.
pub struct Attention {
    qkv: Qkv,
    gated: bool,
    o: Linear,
    norms: Option<[BlockNorm; 2]>,
    /// `[heads]`.
    sinks: Option<Array>,
    qk_norm: QkNorm,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
    scale: f32,
    window: Option<u32>,
    rope: LayerRope,
}

/// How queries, keys and values are projected, where they are not made of latent vectors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum QkvStyle {
    /// `q_proj`, `k_proj` and `v_proj`.
    Apart,
    /// `qkv_proj`: the rows of q, then those of k, then those of v.
    Fused,
    /// Apart; for each head `q_proj` has the rows of the query and then those of a gate, by whose sigmoid
    /// what the head has mixed is multiplied (Qiu et al. 2025, arXiv:2505.06708).
    Gated,
}

/// Values of a token in all heads.
struct Widths {
    queries: usize,
    keys: usize,
    values: usize,
    /// Of what the heads have mixed.
    mixed: usize,
}

impl Widths {
    fn of(attention: &AttentionConfig) -> Widths {
        Widths {
            queries: attention.heads * attention.head_dim,
            keys: attention.kv_heads * attention.head_dim,
            values: attention.kv_heads * attention.value_dim,
            mixed: attention.heads * attention.value_dim,
        }
    }
}

enum Qkv {
    Apart(Box<[Linear; 3]>),
    Fused(Linear),
    Latent(Box<LatentProjections>),
}

impl Attention {
    /// Its tensors in a layer; `rows` is the order in which GGUF has those of queries and keys.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, style: AttentionStyle, rows: RowOrder) {
        let (hidden, head_dim, bias) = (config.hidden_size, config.attention.head_dim, config.attention.bias);
        let Widths {
            queries: inner,
            keys,
            values,
            mixed,
        } = Widths::of(&config.attention);
        let stored = RowOrder::AsStored;
        if let Some(latent) = &config.attention.latent {
            LatentProjections::tensors(layer, config, latent);
        } else if style.qkv == QkvStyle::Fused {
            let all = [inner + keys + values, hidden];
            layer.linear(["self_attn.qkv_proj", "attn_qkv"], all, bias, stored);
        } else {
            let queries = if style.qkv == QkvStyle::Gated {
                inner + mixed
            } else {
                inner
            };
            layer.linear(["self_attn.q_proj", "attn_q"], [queries, hidden], bias, rows);
            layer.linear(["self_attn.k_proj", "attn_k"], [keys, hidden], bias, rows);
            layer.linear(["self_attn.v_proj", "attn_v"], [values, hidden], bias, stored);
        }
        let output = config.attention.output_bias;
        layer.linear(["self_attn.o_proj", "attn_output"], [hidden, mixed], output, stored);
        if style.sinks {
            layer.add(["self_attn.sinks", "attn_sinks.weight"], &[config.attention.heads]);
        }
        let shapes = match style.qk_norm {
            QkNorm::None => return,
            QkNorm::Heads => [vec![head_dim], vec![head_dim]],
            QkNorm::Projection => [vec![inner], vec![keys]],
            QkNorm::EachHead => [config.attention.heads, config.attention.kv_heads].map(|heads| vec![heads, head_dim]),
        };
        layer.part(["self_attn.q_norm", "attn_q_norm"], ".weight", &shapes[0]);
        layer.part(["self_attn.k_norm", "attn_k_norm"], ".weight", &shapes[1]);
    }

    /// The projections as `style` names them under `{name}`, `o_proj`, and `q_norm`, `k_norm` and `sinks` if there
    /// are any. Window and positions are those of layer `layer`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, layer: usize, style: AttentionStyle) -> Result<Attention, Error> {
        let AttentionStyle { qk_norm, qkv, sinks } = style;
        let config = loader.config;
        let (hidden, head_dim, bias) = (config.hidden_size, config.attention.head_dim, config.attention.bias);
        let Widths {
            queries: inner,
            keys,
            values,
            mixed,
        } = Widths::of(&config.attention);
        let project = |part: &str, outputs: usize| loader.linear(&format!("{name}.{part}"), outputs, hidden, bias);
        let norm = |part: &str, whole: usize| {
            let name = format!("{name}.{part}");
            match qk_norm {
                QkNorm::EachHead => BlockNorm::of_heads(loader, &name, [whole / head_dim, head_dim]),
                QkNorm::Heads => loader.norm(&name, head_dim),
                QkNorm::None | QkNorm::Projection => loader.norm(&name, whole),
            }
        };
        let own = config.layer_attention(layer);
        Ok(Attention {
            qkv: match (qkv, &config.attention.latent) {
                (_, Some(latent)) => Qkv::Latent(Box::new(LatentProjections::load(loader, name, latent)?)),
                (QkvStyle::Fused, _) => Qkv::Fused(project("qkv_proj", inner + keys + values)?),
                _ => Qkv::Apart(Box::new([
                    project("q_proj", if qkv == QkvStyle::Gated { inner + mixed } else { inner })?,
                    project("k_proj", keys)?,
                    project("v_proj", values)?,
                ])),
            },
            gated: qkv == QkvStyle::Gated,
            o: loader.linear(&format!("{name}.o_proj"), hidden, mixed, config.attention.output_bias)?,
            norms: match qk_norm {
                QkNorm::None => None,
                _ => Some([norm("q_norm", inner)?, norm("k_norm", keys)?]),
            },
            sinks: if sinks {
                Some(loader.vector(&format!("{name}.sinks"), config.attention.heads)?)
            } else {
                None
            },
            qk_norm,
            heads: config.attention.heads,
            kv_heads: config.attention.kv_heads,
            head_dim,
            value_dim: config.attention.value_dim,
            scale: config.attention.scale,
            window: own.window.map(|window| window as u32),
            rope: own.rope,
        })
    }

    /// An empty cache of `slots` tokens.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new_cache(&self, dtype: DType, slots: usize) -> Result<Cache, refrain::Error> {
        Cache::new(
            self.o.device(),
            dtype,
            slots,
            self.kv_heads,
            [self.head_dim, self.value_dim],
        )
    }

    /// x `[T, hidden]` → `[T, hidden]`; the keys and values of all tokens go to `slots` of the cache.
    pub fn forward(&self, x: &Array, batch: &Batch, slots: &Array, ropes: &Ropes, cache: &mut Cache) -> Array {
        let ([q, k, v], gate) = self.project(x, &batch.positions, ropes.of(self.rope));
        cache.write(&k, &v, slots);

        let params = AttentionParams {
            scale: self.scale,
            page_size: batch.page_size as u32,
            window: self.window,
            decode: batch.decode,
        };
        let (keys, values, places) = (&cache.keys, &cache.values, batch.places());
        let mixed = match &self.sinks {
            Some(sinks) => paged_attention_with_sinks(&q, keys, values, places, sinks, params),
            None => paged_attention(&q, keys, values, places, params),
        };
        let mixed = match gate {
            Some(gate) => mixed * gate.sigmoid(),
            None => mixed,
        };
        self.o
            .forward(&mixed.reshape(&[-1, (self.heads * self.value_dim) as isize]))
    }

    /// Queries from what `q_proj` gave, `[T, heads · D]`, or, where there are gates `[T, heads, D]`, as these.
    fn gate(&self, q: Array) -> (Array, Option<Array>) {
        if !self.gated {
            return (q, None);
        }
        let (queries, both) = (self.head_dim, self.head_dim + self.value_dim);
        let q = q.reshape(&[-1, self.heads as isize, both as isize]);
        (q.slice(-1, 0, queries), Some(q.slice(-1, queries, both)))
    }

    /// Queries and keys `[T, heads, Dk]`, values `[T, heads, Dv]`, and perhaps a gate of the queries' heads.
    fn project(&self, x: &Array, positions: &Array, rope: Option<&Rope>) -> ([Array; 3], Option<Array>) {
        let [q, k, v] = match &self.qkv {
            Qkv::Latent(projections) => return (projections.forward(x, positions, rope), None),
            Qkv::Apart(projections) => projections.each_ref().map(|projection| projection.forward(x)),
            Qkv::Fused(projection) => {
                let all = projection.forward(x);
                let (inner, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
                [
                    (0, inner),
                    (inner, keys),
                    (inner + keys, self.kv_heads * self.value_dim),
                ]
                .map(|(start, n)| all.slice(-1, start, start + n))
            }
        };
        let (q, gate) = self.gate(q);
        let [q, k] = self.normalise(q, k);
        let (q, k) = match rope {
            Some(rope) => (rope.forward(&q, positions), rope.forward(&k, positions)),
            None => (q, k),
        };
        let v = v.reshape(&[-1, self.kv_heads as isize, self.value_dim as isize]);
        ([q, k, v], gate)
    }

    /// Queries (of whichever shape) and keys `[T, heads · D]` → `[T, heads, D]`.
    fn normalise(&self, q: Array, k: Array) -> [Array; 2] {
        let (q, k) = match (&self.norms, self.qk_norm) {
            (Some([q_norm, k_norm]), QkNorm::Projection) => {
                let q = q.reshape(&[-1, (self.heads * self.head_dim) as isize]);
                (q_norm.forward(&q), k_norm.forward(&k))
            }
            _ => (q, k),
        };
        let (q, k) = (self.split(q, self.heads), self.split(k, self.kv_heads));
        match (&self.norms, self.qk_norm) {
            (Some([q_norm, k_norm]), QkNorm::Heads | QkNorm::EachHead) => [q_norm.forward(&q), k_norm.forward(&k)],
            _ => [q, k],
        }
    }

    fn split(&self, x: Array, heads: usize) -> Array {
        x.reshape(&[-1, heads as isize, self.head_dim as isize])
    }
}
