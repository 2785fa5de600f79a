//! Per-layer state of a decoder: KV caches and recurrent states.

use refrain::{Array, Device, Error};
use refrain_lm::{causal_conv, gated_delta, store_rows};

use crate::{Batch, CacheType, CacheTypes};

/// State of a layer after the tokens so far. A clone refers to the same memory.
#[derive(Clone)]
pub enum LayerState {
    /// KV cache.
    Attention(KvCache),
    /// Recurrent state.
    Recurrent(RecurrentState),
}

/// The KV cache of one layer.
#[derive(Clone)]
pub struct KvCache {
    /// `[slots, KVH, Dk]`, or words in place of Dk for block formats.
    pub keys: Array,
    /// `[slots, KVH, Dv]`, or words in place of Dv for block formats.
    pub values: Array,
    /// How they are stored.
    pub types: CacheTypes,
}

/// The state of one recurrent layer. A token at position 0 resets its sequence's state to zero.
#[derive(Clone)]
pub struct RecurrentState {
    /// f32 `[S, kernel − 1, C]`: the last inputs of the short convolution.
    pub window: Array,
    /// f32 `[S, H, Dv, Dk]`: the recurrent state of each head.
    pub state: Array,
}

impl LayerState {
    /// All arrays of the layer. Rows are slots for KV caches, and sequences for recurrent states.
    pub fn arrays(&self) -> [&Array; 2] {
        match self {
            LayerState::Attention(cache) => [&cache.keys, &cache.values],
            LayerState::Recurrent(recurrent_state) => [&recurrent_state.window, &recurrent_state.state],
        }
    }

    /// The keys and values of all attention layers, in order.
    pub fn caches(states: &[LayerState]) -> Vec<&Array> {
        let caches = states.iter().filter(|state| matches!(state, LayerState::Attention(_)));
        caches.flat_map(LayerState::arrays).collect()
    }

    /// The arrays of all recurrent layers, in order.
    pub fn recurrent(states: &[LayerState]) -> Vec<&Array> {
        let recurrent = states.iter().filter(|state| matches!(state, LayerState::Recurrent(_)));
        recurrent.flat_map(LayerState::arrays).collect()
    }

    /// The KV cache of an attention layer.
    ///
    /// # Panics
    /// Panics for a recurrent layer.
    pub fn cache(&mut self) -> &mut KvCache {
        match self {
            LayerState::Attention(cache) => cache,
            LayerState::Recurrent(_) => panic!("a recurrent layer has no keys and values"),
        }
    }

    /// The state of a recurrent layer.
    ///
    /// # Panics
    /// Panics for an attention layer.
    pub fn recurrent_state(&mut self) -> &mut RecurrentState {
        match self {
            LayerState::Attention(_) => panic!("an attention layer has no recurrence"),
            LayerState::Recurrent(recurrent_state) => recurrent_state,
        }
    }
}

impl KvCache {
    /// Allocates a zeroed cache of `slots` tokens and `kv_heads` heads; `head_dims` are the sizes of key and value
    /// heads.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(
        device: &Device,
        types: CacheTypes,
        slots: usize,
        kv_heads: usize,
        head_dims: [usize; 2],
    ) -> Result<KvCache, Error> {
        let [key_dim, value_dim] = head_dims;
        let state = |cache_type: CacheType, dim: usize| {
            let (dtype, elements) = cache_type.elements(dim);
            Array::state(device, dtype, &[slots, kv_heads, elements])
        };
        Ok(KvCache {
            keys: state(types.keys, key_dim)?,
            values: state(types.values, value_dim)?,
            types,
        })
    }

    /// Stores keys `[T, KVH, Dk]` and values `[T, KVH, Dv]` at `slots` (i32 `[T]`).
    pub fn write(&mut self, keys: &Array, values: &Array, slots: &Array) {
        let [key_format, value_format] = self.types.blocks();
        self.keys = store_rows(&self.keys, keys, slots, key_format);
        self.values = store_rows(&self.values, values, slots, value_format);
    }
}

impl RecurrentState {
    /// Causal convolution of x `[T, C]` by weights `[C, kernel]` → f32 `[T, C]`. Updates the window.
    pub fn convolve(&mut self, x: &Array, weights: &Array, batch: &Batch) -> Array {
        batch.by_part([x], |_, part, [x]| {
            let (result, window) = causal_conv(&x, weights, batch.tokens_of(part), &self.window);
            self.window = window;
            result
        })
    }

    /// Gated delta rule of q and k `[T, HK, Dk]`, v `[T, H, Dv]`, decay and beta `[T, H]` → f32 `[T, H, Dv]`. Updates
    /// the state.
    pub fn delta_rule(&mut self, [q, k, v]: [&Array; 3], [decay, beta]: [&Array; 2], batch: &Batch) -> Array {
        batch.by_part([q, k, v, decay, beta], |_, part, [q, k, v, decay, beta]| {
            let (result, state) = gated_delta([&q, &k, &v], [&decay, &beta], batch.tokens_of(part), &self.state);
            self.state = state;
            result
        })
    }
}
