//! What each tensor becomes.

use std::fmt;

use crate::config::ModelConfig;
use crate::gguf::mixture;
use crate::{Encoding, TensorInfo};

/// The formats that a checkpoint can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// Half precision: a GGUF file or a directory.
    F16,
    /// GGUF's blocks of 8 bits.
    Q8_0,
    /// GGUF's blocks of 4 bits; the output head in 6 bits.
    Q4_0,
    /// GGUF's mixture of 4 and 6 bits.
    Q4KM,
    /// MLX's affine quantisation in 4 bits, groups of 64.
    Mlx4,
    /// MLX's affine quantisation in 8 bits, groups of 64.
    Mlx8,
}

/// Values that share MLX's scale and bias.
const MLX_GROUP: u16 = 64;

impl Recipe {
    /// All of them.
    pub const ALL: [Recipe; 6] = [
        Recipe::F16,
        Recipe::Q8_0,
        Recipe::Q4_0,
        Recipe::Q4KM,
        Recipe::Mlx4,
        Recipe::Mlx8,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Recipe::F16 => "f16",
            Recipe::Q8_0 => "q8_0",
            Recipe::Q4_0 => "q4_0",
            Recipe::Q4KM => "q4_k_m",
            Recipe::Mlx4 => "mlx4",
            Recipe::Mlx8 => "mlx8",
        }
    }

    /// The recipe of a name.
    pub fn by_name(name: &str) -> Option<Recipe> {
        Self::ALL.into_iter().find(|recipe| recipe.name() == name)
    }

    /// Whether it makes a GGUF file; `wanted` where it can be either.
    pub(super) fn is_gguf(self, wanted: bool) -> bool {
        match self {
            Recipe::F16 => wanted,
            Recipe::Q8_0 | Recipe::Q4_0 | Recipe::Q4KM => true,
            Recipe::Mlx4 | Recipe::Mlx8 => false,
        }
    }

    /// Bits and group of MLX's quantisation.
    pub(super) fn affine(self) -> Option<(u8, u16)> {
        match self {
            Recipe::Mlx4 => Some((4, MLX_GROUP)),
            Recipe::Mlx8 => Some((8, MLX_GROUP)),
            _ => None,
        }
    }

    /// llama.cpp's number of the mixture (`general.file_type`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            Recipe::Q4_0 => 2,
            Recipe::Q8_0 => 7,
            Recipe::Q4KM => 15,
            _ => 1,
        }
    }

    /// What a tensor becomes in a GGUF file, as llama.cpp's quantiser chooses it.
    pub(super) fn gguf_encoding(self, config: &ModelConfig, tensor: &TensorInfo) -> Encoding {
        if tensor.shape.len() == 1 {
            return Encoding::F32;
        }
        let columns = tensor.columns();
        let wanted = match self {
            Recipe::Q8_0 => Encoding::Q8_0,
            Recipe::Q4_0 if is_output(config, &tensor.name) => Encoding::Q6_K,
            Recipe::Q4_0 => Encoding::Q4_0,
            Recipe::Q4KM => mixture::q4_k_m(config, &tensor.name, columns),
            _ => Encoding::F16,
        };
        match mixture::for_columns(wanted, columns) {
            encoding if columns.is_multiple_of(encoding.block_values()) => encoding,
            _ => Encoding::F16,
        }
    }

    /// What a tensor becomes in a directory, where `plain` is the encoding of what is not quantised.
    pub(super) fn directory_encoding(self, plain: Encoding, tensor: &TensorInfo) -> Encoding {
        match self.affine() {
            Some((bits, group))
                if tensor.shape.len() == 2
                    && tensor.name.ends_with(".weight")
                    && tensor.columns().is_multiple_of(usize::from(group)) =>
            {
                Encoding::MlxAffine { bits, group }
            }
            _ => plain,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the tensor is the output head.
fn is_output(config: &ModelConfig, name: &str) -> bool {
    name == "lm_head.weight" || (config.tie_word_embeddings && name == "model.embed_tokens.weight")
}
