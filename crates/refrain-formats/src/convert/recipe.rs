//! What each tensor becomes.

use std::fmt;

use crate::config::ModelConfig;
use crate::gguf::mixture::{self, MixedFile};
use crate::{Encoding, TensorInfo, mlx};

/// The formats that a checkpoint can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// Half precision: a GGUF file or a directory.
    F16,
    /// GGUF's blocks of 8 bits.
    Q8_0,
    /// GGUF's blocks of 6 bits.
    Q6K,
    /// GGUF's mixture of 5 and 6 bits.
    Q5KM,
    /// GGUF's mixture of 4 and 6 bits.
    Q4KM,
    /// GGUF's mixture of 3, 4 and 5 bits.
    Q3KM,
    /// GGUF's blocks of 4 bits; the output head in 6 bits.
    Q4_0,
    /// MLX's affine quantisation.
    Mlx {
        /// Bits per value: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// Values that share a scale and a bias: 32, 64 or 128.
        group: u16,
    },
}

/// The recipes that make GGUF files, or, of F16, either.
const GGUF: [Recipe; 7] = [
    Recipe::F16,
    Recipe::Q8_0,
    Recipe::Q6K,
    Recipe::Q5KM,
    Recipe::Q4KM,
    Recipe::Q3KM,
    Recipe::Q4_0,
];

impl Recipe {
    /// All of them but MLX's with groups of other sizes than 64: from the largest files to the smallest, GGUF's first.
    pub fn all() -> impl Iterator<Item = Recipe> {
        let mlx = [8, 6, 5, 4, 3, 2].map(|bits| Recipe::Mlx {
            bits,
            group: mlx::USUAL_GROUP,
        });
        GGUF.into_iter().chain(mlx)
    }

    /// The recipe of a name, in any case of letters, such as `Q4_K_M`, `mlx4` or `mlx4-g32`.
    pub fn by_name(name: &str) -> Option<Recipe> {
        let name = name.to_ascii_lowercase();
        let gguf = GGUF.into_iter().find(|recipe| recipe.to_string() == name);
        gguf.or_else(|| mlx::by_name(&name).map(|(bits, group)| Recipe::Mlx { bits, group }))
    }

    /// Whether it makes a GGUF file; `wanted` where it can be either.
    pub(super) fn is_gguf(self, wanted: bool) -> bool {
        match self {
            Recipe::F16 => wanted,
            Recipe::Mlx { .. } => false,
            _ => true,
        }
    }

    /// Bits and group of MLX's quantisation.
    pub(super) fn affine(self) -> Option<(u8, u16)> {
        match self {
            Recipe::Mlx { bits, group } => Some((bits, group)),
            _ => None,
        }
    }

    /// Whether values are rounded to fewer bits than those of half precision.
    pub(super) fn is_quantised(self) -> bool {
        self != Recipe::F16
    }

    /// llama.cpp's number of the mixture (`general.file_type`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            Recipe::Q4_0 => 2,
            Recipe::Q8_0 => 7,
            Recipe::Q3KM => 12,
            Recipe::Q4KM => 15,
            Recipe::Q5KM => 17,
            Recipe::Q6K => 18,
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
            Recipe::Q4_0 if mixture::is_output(config, &tensor.name) => Encoding::Q6_K,
            Recipe::Q4_0 => Encoding::Q4_0,
            Recipe::Q3KM => MixedFile::Q3KM.encoding(config, &tensor.name),
            Recipe::Q4KM => MixedFile::Q4KM.encoding(config, &tensor.name),
            Recipe::Q5KM => MixedFile::Q5KM.encoding(config, &tensor.name),
            Recipe::Q6K => Encoding::Q6_K,
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
        match self {
            Recipe::F16 => f.write_str("f16"),
            Recipe::Q8_0 => f.write_str("q8_0"),
            Recipe::Q6K => f.write_str("q6_k"),
            Recipe::Q5KM => f.write_str("q5_k_m"),
            Recipe::Q4KM => f.write_str("q4_k_m"),
            Recipe::Q3KM => f.write_str("q3_k_m"),
            Recipe::Q4_0 => f.write_str("q4_0"),
            Recipe::Mlx { bits, group } => f.write_str(&mlx::name(*bits, *group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_found_by_their_names_in_any_case() {
        for recipe in Recipe::all() {
            assert_eq!(Recipe::by_name(&recipe.to_string()), Some(recipe));
            assert_eq!(Recipe::by_name(&recipe.to_string().to_uppercase()), Some(recipe));
        }
        assert_eq!(Recipe::by_name("MLX4-G32"), Some(Recipe::Mlx { bits: 4, group: 32 }));
        assert_eq!(Recipe::by_name("mlx7"), None);
    }
}
