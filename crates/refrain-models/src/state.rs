use refrain::{Array, DType, Device, Error};
use refrain_lm::{causal_conv, gated_delta};

use crate::Batch;

/// What a layer remembers of the tokens before, at its newest version. A clone names the same memory.
#[derive(Clone)]
pub enum LayerState {
    /// Keys and values by position.
    Attention(Cache),
    /// What a recurrence has made of all tokens so far.
    Recurrent(Recurrence),
}

/// One layer's keys and values.
#[derive(Clone)]
pub struct Cache {
    /// `[slots, KVH, Dk]`.
    pub keys: Array,
    /// `[slots, KVH, Dv]`.
    pub values: Array,
}

/// The states of one recurrent layer. A sequence whose token at position 0 is seen starts from zeros.
#[derive(Clone)]
pub struct Recurrence {
    /// f32 `[S, taps − 1, C]`: the last inputs of a short convolution.
    pub window: Array,
    /// f32 `[S, H, Dv, Dk]`: the memory of each head.
    pub state: Array,
}

impl LayerState {
    /// All memory of the layer: for keys and values rows are slots, else sequences.
    pub fn arrays(&self) -> [&Array; 2] {
        match self {
            LayerState::Attention(cache) => [&cache.keys, &cache.values],
            LayerState::Recurrent(recurrence) => [&recurrence.window, &recurrence.state],
        }
    }

    /// Those of the arrays of all layers that are recurrent, in their order.
    pub fn recurrent(states: &[LayerState]) -> Vec<&Array> {
        let recurrent = states.iter().filter(|state| matches!(state, LayerState::Recurrent(_)));
        recurrent.flat_map(LayerState::arrays).collect()
    }

    /// The keys and values of an attention layer.
    ///
    /// # Panics
    /// For a recurrent layer: a model knows which of its layers is which.
    pub fn cache(&mut self) -> &mut Cache {
        match self {
            LayerState::Attention(cache) => cache,
            LayerState::Recurrent(_) => panic!("a recurrent layer has no keys and values"),
        }
    }

    /// The states of a recurrent layer.
    ///
    /// # Panics
    /// For an attention layer.
    pub fn recurrence(&mut self) -> &mut Recurrence {
        match self {
            LayerState::Attention(_) => panic!("an attention layer has no recurrence"),
            LayerState::Recurrent(recurrence) => recurrence,
        }
    }
}

impl Cache {
    /// Zeros for `slots` tokens of `kv_heads` heads, of as many values in keys and in values as `head_dims` say.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(
        device: &Device,
        dtype: DType,
        slots: usize,
        kv_heads: usize,
        head_dims: [usize; 2],
    ) -> Result<Cache, Error> {
        let [key_dim, value_dim] = head_dims;
        Ok(Cache {
            keys: Array::state(device, dtype, &[slots, kv_heads, key_dim])?,
            values: Array::state(device, dtype, &[slots, kv_heads, value_dim])?,
        })
    }

    /// Stores keys `[T, KVH, Dk]` and values `[T, KVH, Dv]` at `slots` (i32 `[T]`).
    pub fn write(&mut self, keys: &Array, values: &Array, slots: &Array) {
        self.keys = self.keys.write_rows(keys, slots);
        self.values = self.values.write_rows(values, slots);
    }
}

impl Recurrence {
    /// A causal convolution of x `[T, C]` by weights `[C, taps]` → f32 `[T, C]`, which takes in the tokens.
    pub fn convolve(&mut self, x: &Array, weights: &Array, batch: &Batch) -> Array {
        let (result, window) = causal_conv(x, weights, batch.places(), &self.window);
        self.window = window;
        result
    }

    /// The gated delta rule by q and k `[T, HK, Dk]`, v `[T, H, Dv]`, decay and beta `[T, H]` → f32
    /// `[T, H, Dv]`, which takes in the tokens.
    pub fn remember(&mut self, qkv: [&Array; 3], gates: [&Array; 2], batch: &Batch) -> Array {
        let (result, state) = gated_delta(qkv, gates, batch.places(), &self.state);
        self.state = state;
        result
    }
}
