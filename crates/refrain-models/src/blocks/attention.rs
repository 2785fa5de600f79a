use refrain::{Array, AttentionParams, fast};

use super::{Linear, Rope};
use crate::{Batch, Cache, Error, Loader};

/// Grouped-query attention (Ainslie et al. 2023) over a paged cache, with or without norms of the
/// queries and keys.
pub struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    q_norm: Option<Array>,
    k_norm: Option<Array>,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    eps: f32,
    window: Option<u32>,
}

impl Attention {
    /// `{name}.q_proj` … `o_proj`, and `q_norm` and `k_norm` if `normed`.
    pub fn load(loader: &Loader<'_>, name: &str, normed: bool) -> Result<Attention, Error> {
        let config = loader.config;
        let (hidden, head_dim, bias) = (config.hidden_size, config.head_dim, config.attention_bias);
        let (inner, kv_inner) = (config.heads * head_dim, config.kv_heads * head_dim);
        let norm = |norm: &str| {
            normed
                .then(|| loader.vector(&format!("{name}.{norm}.weight"), head_dim))
                .transpose()
        };
        Ok(Attention {
            q: loader.linear(&format!("{name}.q_proj"), inner, hidden, bias)?,
            k: loader.linear(&format!("{name}.k_proj"), kv_inner, hidden, bias)?,
            v: loader.linear(&format!("{name}.v_proj"), kv_inner, hidden, bias)?,
            o: loader.linear(&format!("{name}.o_proj"), hidden, inner, bias)?,
            q_norm: norm("q_norm")?,
            k_norm: norm("k_norm")?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim,
            eps: config.rms_norm_eps,
            window: config.sliding_window.map(|w| w as u32),
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`; the keys and values of all tokens go to `slots` of the cache.
    pub fn forward(&self, x: &Array, batch: &Batch, slots: &Array, rope: &Rope, cache: &mut Cache) -> Array {
        let heads = |x: Array, n: usize| x.reshape(&[-1, n as isize, self.head_dim as isize]);
        let q = self.normed(heads(self.q.forward(x), self.heads), &self.q_norm);
        let k = self.normed(heads(self.k.forward(x), self.kv_heads), &self.k_norm);
        let v = heads(self.v.forward(x), self.kv_heads);

        let (q, k) = (rope.forward(&q, &batch.positions), rope.forward(&k, &batch.positions));
        cache.write(&k, &v, slots);

        let params = AttentionParams {
            scale: (self.head_dim as f32).powf(-0.5),
            page_size: batch.page_size as u32,
            window: self.window,
        };
        let mixed = fast::paged_attention(&q, &cache.keys, &cache.values, batch.places(), params);
        self.o
            .forward(&mixed.reshape(&[-1, (self.heads * self.head_dim) as isize]))
    }

    fn normed(&self, x: Array, weight: &Option<Array>) -> Array {
        match weight {
            Some(weight) => fast::rms_norm(&x, Some(weight), self.eps),
            None => x,
        }
    }
}
