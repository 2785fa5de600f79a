//! Options for how keys and values are stored.

use clap::Args;
use refrain::Device;
use refrain_engine::{CacheType, CacheTypes};

/// Types of the KV cache.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct CacheArguments {
    /// Type of the KV cache: f16, bf16, q8_0 (half the memory) or q4_0 (a quarter), or two types as KEYS,VALUES
    /// [default: f16, on the CPU f32]
    #[arg(long, value_name = "TYPE")]
    kv_type: Option<CacheTypes>,
    /// Type of keys, as in llama.cpp
    #[arg(long, value_name = "TYPE", hide = true)]
    cache_type_k: Option<CacheType>,
    /// Type of values, as in llama.cpp
    #[arg(long, value_name = "TYPE", hide = true)]
    cache_type_v: Option<CacheType>,
}

impl CacheArguments {
    /// The types for a device.
    pub fn types(self, device: &Device) -> CacheTypes {
        let both = self.kv_type.unwrap_or_else(|| CacheTypes::of_device(device));
        CacheTypes {
            keys: self.cache_type_k.unwrap_or(both.keys),
            values: self.cache_type_v.unwrap_or(both.values),
        }
    }
}
