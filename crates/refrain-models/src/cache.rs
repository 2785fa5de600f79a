use refrain::{Array, DType, Device, Error};

/// One layer's keys and values, at their newest version.
pub struct Cache {
    /// `[slots, KVH, D]`.
    pub keys: Array,
    /// `[slots, KVH, D]`.
    pub values: Array,
}

impl Cache {
    /// Zeros for `slots` tokens of `kv_heads` heads of `head_dim` values.
    pub fn new(device: &Device, dtype: DType, slots: usize, kv_heads: usize, head_dim: usize) -> Result<Cache, Error> {
        let shape = [slots, kv_heads, head_dim];
        Ok(Cache {
            keys: Array::state(device, dtype, &shape)?,
            values: Array::state(device, dtype, &shape)?,
        })
    }

    /// Stores keys and values `[T, KVH, D]` at `slots` (i32 `[T]`).
    pub fn write(&mut self, keys: &Array, values: &Array, slots: &Array) {
        self.keys = self.keys.write_rows(keys, slots);
        self.values = self.values.write_rows(values, slots);
    }
}

impl Clone for Cache {
    fn clone(&self) -> Cache {
        Cache {
            keys: self.keys.clone(),
            values: self.values.clone(),
        }
    }
}
