//! How keys and values are stored in the KV cache.

use std::fmt;
use std::str::FromStr;

use refrain::{DType, Device};
use refrain_lm::BlockFormat;

use crate::ModelConfig;

/// How keys or values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CacheType {
    /// Floats.
    Float(DType),
    /// Blocks of values that share a scale.
    Blocks(BlockFormat),
}

/// Types of keys and of values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheTypes {
    /// Type of keys.
    pub keys: CacheType,
    /// Type of values.
    pub values: CacheType,
}

impl CacheType {
    /// All types.
    pub fn all() -> impl Iterator<Item = CacheType> {
        let floats = [DType::F16, DType::BF16, DType::F32].map(CacheType::Float);
        floats.into_iter().chain(BlockFormat::ALL.map(CacheType::Blocks))
    }

    /// Its name in options and messages, as llama.cpp's.
    pub fn name(self) -> &'static str {
        match self {
            CacheType::Float(dtype) => dtype.name(),
            CacheType::Blocks(format) => format.name,
        }
    }

    /// Its block format; `None` for floats.
    pub fn blocks(self) -> Option<BlockFormat> {
        match self {
            CacheType::Float(_) => None,
            CacheType::Blocks(format) => Some(format),
        }
    }

    /// Whether heads of `dim` values can be stored.
    pub fn supports(self, dim: usize) -> bool {
        self.blocks().is_none_or(|format| format.supports(dim))
    }

    /// The type and number of the elements that store a head of `dim` values.
    pub(crate) fn elements(self, dim: usize) -> (DType, usize) {
        match self {
            CacheType::Float(dtype) => (dtype, dim),
            CacheType::Blocks(format) => (DType::U32, format.words(dim)),
        }
    }

    /// Bytes of a head of `dim` values.
    pub fn bytes(self, dim: usize) -> usize {
        let (dtype, count) = self.elements(dim);
        dtype.size() * count
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheType {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheType, String> {
        let named = CacheType::all().find(|cache_type| cache_type.name() == text);
        named.ok_or_else(|| {
            let known: Vec<&str> = CacheType::all().map(CacheType::name).collect();
            format!("unknown type {text:?}; use {}", known.join(", "))
        })
    }
}

impl CacheTypes {
    /// The types unless others are given: f16, and f32 on the CPU executor, which is the reference and rounds nothing.
    pub fn of_device(device: &Device) -> CacheTypes {
        let dtype = if device.is_cpu() { DType::F32 } else { DType::F16 };
        CacheTypes {
            keys: CacheType::Float(dtype),
            values: CacheType::Float(dtype),
        }
    }

    /// Block formats of keys and of values; `None` for floats.
    pub fn blocks(self) -> [Option<BlockFormat>; 2] {
        [self.keys.blocks(), self.values.blocks()]
    }

    /// The first type that cannot store the model's heads, and their dimension.
    pub fn unsupported(self, config: &ModelConfig) -> Option<(CacheType, usize)> {
        let heads = &config.attention;
        let parts = [(self.keys, heads.head_dim), (self.values, heads.value_dim)];
        parts.into_iter().find(|(cache_type, dim)| !cache_type.supports(*dim))
    }

    /// Bytes of a token's keys and of its values in one attention layer.
    pub fn layer_bytes(self, config: &ModelConfig) -> [usize; 2] {
        let heads = &config.attention;
        [self.keys.bytes(heads.head_dim), self.values.bytes(heads.value_dim)].map(|bytes| heads.kv_heads * bytes)
    }

    /// Returns the bytes of keys and values per token of a text.
    pub fn bytes_per_token(self, config: &ModelConfig) -> u64 {
        let layer: usize = self.layer_bytes(config).iter().sum();
        (config.attention_layers() * layer) as u64
    }
}

impl fmt::Display for CacheTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keys == self.values {
            return self.keys.fmt(f);
        }
        write!(f, "{},{}", self.keys, self.values)
    }
}

impl FromStr for CacheTypes {
    type Err = String;

    /// Reads a type of both, or `KEYS,VALUES`.
    fn from_str(text: &str) -> Result<CacheTypes, String> {
        let (keys, values) = text.split_once(',').unwrap_or((text, text));
        Ok(CacheTypes {
            keys: keys.trim().parse()?,
            values: values.trim().parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_one_or_two_names() {
        let read = |text: &str| text.parse::<CacheTypes>().map(|types| types.to_string());
        assert_eq!(read("q8_0"), Ok("q8_0".to_owned()));
        assert_eq!(read("f16,q4_0"), Ok("f16,q4_0".to_owned()));
        assert!(read("q5_0").is_err_and(|why| why.contains("f16, bf16, f32, q8_0, q4_0")));
    }

    #[test]
    fn blocks_take_about_half_and_a_quarter_of_f16() {
        let bytes = |name: &str| name.parse::<CacheType>().expect("a type").bytes(128);
        assert_eq!(["f16", "bf16", "q8_0", "q4_0"].map(bytes), [256, 256, 136, 72]);
    }
}
