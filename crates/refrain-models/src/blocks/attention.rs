//! Grouped-query attention over the paged KV cache.

use refrain::Array;
use refrain_formats::RowOrder;
use refrain_lm::{AttentionParams, paged_attention, paged_attention_with_sinks};

use super::{Linear, MlaProjections, Norm, Rope, Ropes};
use crate::config::{AttentionConfig, LayerRope, ModelConfig};
use crate::tensors::TensorTable;
use crate::{Batch, BatchPart, CacheTypes, Error, KvCache, Loader};

/// Normalisation of queries and keys before the rotary embedding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// RMS norm of each head, with shared weights.
    Heads,
    /// RMS norm over all heads of a token.
    Projection,
    /// LayerNorm of each head, with separate weights per head.
    EachHead,
}

/// Architectural choices of a family's attention.
#[derive(Clone, Copy)]
pub struct AttentionStyle {
    /// Normalisation of queries and keys.
    pub qk_norm: QkNorm,
    /// Projection of queries, keys and values.
    pub qkv: QkvStyle,
    /// Whether each head's softmax includes a learned sink logit, whose value is zero (Xiao et al. 2023,
    /// arXiv:2309.17453).
    pub sinks: bool,
}

/// Grouped-query attention (Ainslie et al. 2023) over a paged cache.
pub struct Attention {
    qkv: Qkv,
    gated: bool,
    o: Linear,
    norms: Option<[Norm; 2]>,
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

/// Layout of the query, key and value projections (without MLA).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum QkvStyle {
    /// `q_proj`, `k_proj` and `v_proj`.
    Separate,
    /// One `qkv_proj`: rows of q, k, v.
    Fused,
    /// Separate. `q_proj` has for each head the rows of the query, then those of an output gate; the head's output is
    /// multiplied by the gate's sigmoid (Qiu et al. 2025, arXiv:2505.06708).
    Gated,
}

/// Values per token over all heads.
struct Widths {
    queries: usize,
    keys: usize,
    values: usize,
    /// Of the attention output.
    output: usize,
}

impl Widths {
    fn of(attention: &AttentionConfig) -> Widths {
        Widths {
            queries: attention.heads * attention.head_dim,
            keys: attention.kv_heads * attention.head_dim,
            values: attention.kv_heads * attention.value_dim,
            output: attention.heads * attention.value_dim,
        }
    }
}

enum Qkv {
    Separate(Box<[Linear; 3]>),
    Fused(Linear),
    Mla(Box<MlaProjections>),
}

impl Attention {
    /// Lists the tensors of a layer; `rows` is the row order of queries and keys in GGUF.
    pub fn tensors(layer: &mut TensorTable, config: &ModelConfig, style: AttentionStyle, rows: RowOrder) {
        let (hidden, head_dim, bias) = (config.hidden_size, config.attention.head_dim, config.attention.bias);
        let Widths {
            queries: q_width,
            keys,
            values,
            output: attn_width,
        } = Widths::of(&config.attention);
        let stored = RowOrder::AsStored;
        if let Some(mla) = &config.attention.mla {
            MlaProjections::tensors(layer, config, mla);
        } else if style.qkv == QkvStyle::Fused {
            let all = [q_width + keys + values, hidden];
            layer.linear(["self_attn.qkv_proj", "attn_qkv"], all, bias, stored);
        } else {
            let queries = if style.qkv == QkvStyle::Gated {
                q_width + attn_width
            } else {
                q_width
            };
            layer.linear(["self_attn.q_proj", "attn_q"], [queries, hidden], bias, rows);
            layer.linear(["self_attn.k_proj", "attn_k"], [keys, hidden], bias, rows);
            layer.linear(["self_attn.v_proj", "attn_v"], [values, hidden], bias, stored);
        }
        let output = config.attention.output_bias;
        layer.linear(
            ["self_attn.o_proj", "attn_output"],
            [hidden, attn_width],
            output,
            stored,
        );
        if style.sinks {
            layer.add(["self_attn.sinks", "attn_sinks.weight"], &[config.attention.heads]);
        }
        let shapes = match style.qk_norm {
            QkNorm::None => return,
            QkNorm::Heads => [vec![head_dim], vec![head_dim]],
            QkNorm::Projection => [vec![q_width], vec![keys]],
            QkNorm::EachHead => [config.attention.heads, config.attention.kv_heads].map(|heads| vec![heads, head_dim]),
        };
        layer.with_suffix(["self_attn.q_norm", "attn_q_norm"], ".weight", &shapes[0]);
        layer.with_suffix(["self_attn.k_norm", "attn_k_norm"], ".weight", &shapes[1]);
    }

    /// Loads the projections named by `style` under `{name}`, `o_proj`, and `q_norm`, `k_norm` and `sinks` if
    /// present. Uses the window and rotary embedding of layer `layer`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, layer: usize, style: AttentionStyle) -> Result<Attention, Error> {
        let AttentionStyle { qk_norm, qkv, sinks } = style;
        let config = loader.config;
        let (hidden, head_dim, bias) = (config.hidden_size, config.attention.head_dim, config.attention.bias);
        let Widths {
            queries: q_width,
            keys,
            values,
            output: attn_width,
        } = Widths::of(&config.attention);
        let project = |part: &str, outputs: usize| loader.linear(&format!("{name}.{part}"), outputs, hidden, bias);
        let norm = |part: &str, whole: usize| {
            let name = format!("{name}.{part}");
            match qk_norm {
                QkNorm::EachHead => Norm::per_head(loader, &name, [whole / head_dim, head_dim]),
                QkNorm::Heads => loader.norm(&name, head_dim),
                QkNorm::None | QkNorm::Projection => loader.norm(&name, whole),
            }
        };
        let own = config.layer_attention(layer);
        Ok(Attention {
            qkv: match (qkv, &config.attention.mla) {
                (_, Some(mla)) => Qkv::Mla(Box::new(MlaProjections::load(loader, name, mla)?)),
                (QkvStyle::Fused, _) => Qkv::Fused(project("qkv_proj", q_width + keys + values)?),
                _ => Qkv::Separate(Box::new([
                    project(
                        "q_proj",
                        if qkv == QkvStyle::Gated {
                            q_width + attn_width
                        } else {
                            q_width
                        },
                    )?,
                    project("k_proj", keys)?,
                    project("v_proj", values)?,
                ])),
            },
            gated: qkv == QkvStyle::Gated,
            o: loader.linear(
                &format!("{name}.o_proj"),
                hidden,
                attn_width,
                config.attention.output_bias,
            )?,
            norms: match qk_norm {
                QkNorm::None => None,
                _ => Some([norm("q_norm", q_width)?, norm("k_norm", keys)?]),
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

    /// Allocates a KV cache of `slots` tokens.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new_cache(&self, types: CacheTypes, slots: usize) -> Result<KvCache, refrain::Error> {
        KvCache::new(
            self.o.device(),
            types,
            slots,
            self.kv_heads,
            [self.head_dim, self.value_dim],
        )
    }

    /// x `[T, hidden]` → `[T, hidden]`. Writes keys and values to `slots` of the cache, those of each part.
    pub fn forward(&self, x: &Array, batch: &Batch, slots: &[Array], ropes: &Ropes, cache: &mut KvCache) -> Array {
        let rope = ropes.for_layer(self.rope);
        let [q, k, v] = self.project(x, batch, rope);
        let attn_out = batch.by_part([&q, &k, &v], |number, part, qkv| {
            let ([q, k, v], gate) = self.heads(qkv, part, rope);
            cache.write(&k, &v, &slots[number]);
            let attn_out = self.attend(&q, batch, part, cache);
            let attn_out = match gate {
                Some(gate) => attn_out * gate.sigmoid(),
                None => attn_out,
            };
            attn_out.reshape(&[-1, (self.heads * self.value_dim) as isize])
        });
        self.o.forward(&attn_out)
    }

    /// Attention of queries `[t, heads, Dk]` of a part to the keys and values in the cache → `[t, heads, Dv]`.
    fn attend(&self, q: &Array, batch: &Batch, part: &BatchPart, cache: &KvCache) -> Array {
        let params = AttentionParams {
            scale: self.scale,
            page_size: batch.page_size as u32,
            window: self.window,
            decode: part.decode,
            blocks: cache.types.blocks(),
        };
        let (keys, values, tokens) = (&cache.keys, &cache.values, batch.tokens_of(part));
        match &self.sinks {
            Some(sinks) => paged_attention_with_sinks(q, keys, values, tokens, sinks, params),
            None => paged_attention(q, keys, values, tokens, params),
        }
    }

    /// Splits the output of `q_proj` into queries and an optional output gate `[T, heads, D]`.
    fn gate(&self, q: Array) -> (Array, Option<Array>) {
        if !self.gated {
            return (q, None);
        }
        let (queries, both) = (self.head_dim, self.head_dim + self.value_dim);
        let q = q.reshape(&[-1, self.heads as isize, both as isize]);
        (q.slice(-1, 0, queries), Some(q.slice(-1, queries, both)))
    }

    /// Projects x `[T, hidden]` to queries, keys and values, which [`Attention::heads`] completes.
    fn project(&self, x: &Array, batch: &Batch, rope: Option<&Rope>) -> [Array; 3] {
        match &self.qkv {
            Qkv::Mla(projections) => projections.forward(x, &batch.positions(), rope),
            Qkv::Separate(projections) => projections.each_ref().map(|projection| projection.forward(x)),
            Qkv::Fused(projection) => {
                let all = projection.forward(x);
                let (q_width, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
                [
                    (0, q_width),
                    (q_width, keys),
                    (q_width + keys, self.kv_heads * self.value_dim),
                ]
                .map(|(start, n)| all.slice(-1, start, start + n))
            }
        }
    }

    /// Returns queries and keys `[t, heads, Dk]` of a part, normalised and rotated, its values `[t, heads, Dv]`, and an
    /// optional output gate.
    fn heads(&self, qkv: [Array; 3], part: &BatchPart, rope: Option<&Rope>) -> ([Array; 3], Option<Array>) {
        // Those of latent attention are complete.
        if matches!(self.qkv, Qkv::Mla(_)) {
            return (qkv, None);
        }
        let [q, k, v] = qkv;
        let (q, gate) = self.gate(q);
        let [q, k] = self.normalise(q, k);
        let (q, k) = match rope {
            Some(rope) => (rope.forward(&q, &part.positions), rope.forward(&k, &part.positions)),
            None => (q, k),
        };
        let v = v.reshape(&[-1, self.kv_heads as isize, self.value_dim as isize]);
        ([q, k, v], gate)
    }

    /// Splits queries (of any shape) and keys `[T, heads · D]` into heads `[T, heads, D]`, and normalises them.
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
