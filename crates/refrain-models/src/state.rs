//! Per-layer state of a decoder: KV caches and recurrent states.

use refrain::{Array, Device, Error};
use refrain_lm::{
    causal_conv, causal_conv_results, causal_conv_state, gated_delta, gated_delta_decode, gated_delta_results,
    gated_delta_state, store_rows,
};

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
    /// What [`RecurrentState::commit`] needs, if updates are deferred.
    deferred: Option<DeferredUpdate>,
}

/// The inputs of updates that are not made yet, once the layer was computed.
#[derive(Clone, Default)]
struct DeferredUpdate {
    /// x and weights of the convolution.
    convolved: Option<[Array; 2]>,
    /// q, k, v, decay and beta of the delta rule.
    rule: Option<[Array; 5]>,
    /// u32 `[T]`: each token's sequence.
    sequences: Option<Array>,
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

    /// Makes the next batch leave recurrent states as they are, until [`LayerState::commit`]. That batch has one part.
    pub fn defer_updates(&mut self) {
        if let LayerState::Recurrent(recurrent_state) = self {
            recurrent_state.deferred = Some(DeferredUpdate::default());
        }
    }

    /// Updates recurrent states with those tokens of the batch since [`LayerState::defer_updates`] that have a position.
    /// These are the first tokens of each sequence; `positions` (i32 `[T]`) has negative ones for all others. Keys and
    /// values of attention layers are stored at once, so nothing happens to them.
    pub fn commit(&mut self, positions: &Array) {
        if let LayerState::Recurrent(recurrent_state) = self {
            recurrent_state.commit(positions);
        }
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
    /// Creates the state from its arrays.
    pub fn new(window: Array, state: Array) -> RecurrentState {
        RecurrentState {
            window,
            state,
            deferred: None,
        }
    }

    /// Causal convolution of x `[T, C]` by weights `[C, kernel]` → f32 `[T, C]`. Updates the window, or defers that.
    pub fn convolve(&mut self, x: &Array, weights: &Array, batch: &Batch) -> Array {
        batch.by_part([x], |_, part, [x]| {
            let tokens = batch.tokens_of(part);
            if let Some(deferred) = &mut self.deferred {
                let result = causal_conv_results(&x, weights, tokens, &self.window);
                deferred.sequences = Some(part.sequences.clone());
                deferred.convolved = Some([x, weights.clone()]);
                return result;
            }
            let (result, window) = causal_conv(&x, weights, tokens, &self.window);
            self.window = window;
            result
        })
    }

    /// Gated delta rule of q and k `[T, HK, Dk]`, v `[T, H, Dv]`, decay and beta `[T, H]` → f32 `[T, H, Dv]`. Updates
    /// the state, or defers that.
    pub fn delta_rule(&mut self, [q, k, v]: [&Array; 3], [decay, beta]: [&Array; 2], batch: &Batch) -> Array {
        batch.by_part([q, k, v, decay, beta], |_, part, [q, k, v, decay, beta]| {
            let tokens = batch.tokens_of(part);
            if let Some(deferred) = &mut self.deferred {
                let result = gated_delta_results([&q, &k, &v], [&decay, &beta], tokens, &self.state);
                deferred.sequences = Some(part.sequences.clone());
                deferred.rule = Some([q, k, v, decay, beta]);
                return result;
            }
            let rule = if part.decode { gated_delta_decode } else { gated_delta };
            let (result, state) = rule([&q, &k, &v], [&decay, &beta], tokens, &self.state);
            self.state = state;
            result
        })
    }

    /// Makes the deferred updates with the tokens that have a position.
    fn commit(&mut self, positions: &Array) {
        let Some(deferred) = self.deferred.take() else { return };
        let Some(sequences) = &deferred.sequences else { return };
        if let Some([x, weights]) = &deferred.convolved {
            self.window = causal_conv_state(x, weights, [positions, sequences], &self.window);
        }
        if let Some([q, k, v, decay, beta]) = &deferred.rule {
            self.state = gated_delta_state([q, k, v], [decay, beta], [positions, sequences], &self.state);
        }
    }
}
