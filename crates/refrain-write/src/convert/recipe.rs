//! What each tensor becomes.

use std::fmt;

use refrain_formats::mixed::{self, MixedFile};
use refrain_formats::{Encoding, TensorInfo};
use refrain_models::ModelConfig;
use refrain_models::config::{is_norm, is_router};
use refrain_quant::QuantRecord;

use super::experts;

/// The formats that a checkpoint can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// Half precision: a GGUF file or a directory.
    F16,
    /// A GGUF file of blocks of one format.
    Blocks(&'static QuantRecord),
    /// A GGUF file of blocks of several.
    Mixed(MixedFile),
    /// A directory as MLX quantises it.
    Mlx(&'static QuantRecord),
}

/// Formats of blocks that whole files are made of: those with more bits than mixtures, and those with fewer.
const BLOCKS: [&[&str]; 2] = [&["q8_0", "q6_k"], &["q4_0", "iq4_nl", "iq4_xs", EXPERTS]];

/// That of experts alone; what else there is takes 8 bits.
const EXPERTS: &str = "mxfp4";

impl Recipe {
    /// All of them but MLX's with groups of other sizes than 64: from the largest files to the smallest, GGUF's first.
    pub fn all() -> impl Iterator<Item = Recipe> {
        let [more, fewer] = BLOCKS.map(|names| {
            let records = names.iter().filter_map(|name| refrain_quant::by_name(name));
            records.map(Recipe::Blocks)
        });
        let mixed = MixedFile::ALL.into_iter().map(Recipe::Mixed);
        // Those with a name that leaves out the group.
        let usual = refrain_quant::records().filter(|r| r.is_mlx_affine() && r.spellings.len() > 1);
        let mut mlx = Vec::from_iter(usual);
        mlx.sort_by_key(|record| std::cmp::Reverse(record.format.bits));
        let gguf = [Recipe::F16].into_iter().chain(more).chain(mixed).chain(fewer);
        gguf.chain(mlx.into_iter().map(Recipe::Mlx))
    }

    /// The names of MLX's formats that say the size of their groups.
    pub fn grouped() -> impl Iterator<Item = &'static str> {
        let mlx = refrain_quant::records().filter(|record| record.is_mlx_affine());
        mlx.filter_map(|record| record.spellings.last().copied())
    }

    /// The recipe of a name, in any case of letters, such as `Q4_0`, `mlx4` or `mlx4-g32`.
    pub fn by_name(name: &str) -> Option<Recipe> {
        let name = name.to_ascii_lowercase();
        let usual = Recipe::all().find(|recipe| recipe.to_string() == name);
        let mlx = || refrain_quant::by_spelling(&name).filter(|record| record.is_mlx_affine());
        usual.or_else(|| mlx().map(Recipe::Mlx))
    }

    /// Whether it makes a GGUF file; `wanted` where it can be either.
    pub(super) fn is_gguf(self, wanted: bool) -> bool {
        match self {
            Recipe::F16 => wanted,
            Recipe::Mlx(_) => false,
            Recipe::Blocks(_) | Recipe::Mixed(_) => true,
        }
    }

    /// MLX's format.
    pub(super) fn affine(self) -> Option<&'static QuantRecord> {
        match self {
            Recipe::Mlx(record) => Some(record),
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
            Recipe::Blocks(record) => record.block.map_or(1, |block| block.file_type),
            Recipe::Mixed(file) => file.file_type(),
            _ => 1,
        }
    }

    /// What a tensor becomes in a GGUF file, as llama.cpp's quantiser chooses it.
    pub(super) fn gguf_encoding(self, config: &ModelConfig, tensor: &TensorInfo) -> Encoding {
        if tensor.shape.len() == 1
            || is_router(&tensor.name)
            || is_norm(&tensor.name)
            || tensor.name.ends_with("conv1d.weight")
        {
            return Encoding::F32;
        }
        let (columns, place) = (tensor.columns(), config.matrix_place());
        let wanted = match self {
            Recipe::Blocks(record) if record.name == EXPERTS && !experts::is_one(&tensor.name) => {
                Encoding::named("q8_0")
            }
            Recipe::Blocks(record) if record.format.bits <= 4 && mixed::is_output(place, &tensor.name) => {
                mixed::output_head()
            }
            Recipe::Blocks(record) => Encoding::Quantised(record),
            Recipe::Mixed(file) => file.encoding(place, &tensor.name),
            _ => Encoding::F16,
        };
        match mixed::for_columns(wanted, columns) {
            encoding if columns.is_multiple_of(encoding.block_values()) => encoding,
            _ => Encoding::F16,
        }
    }

    /// What a tensor becomes in a directory, where `plain` is the encoding of what is not quantised.
    pub(super) fn directory_encoding(self, plain: Encoding, tensor: &TensorInfo) -> Encoding {
        match self.affine() {
            Some(record)
                if tensor.shape.len() == 2
                    && !is_router(&tensor.name)
                    && !is_norm(&tensor.name)
                    && tensor.name.ends_with(".weight")
                    && tensor.columns().is_multiple_of(record.format.unit()) =>
            {
                Encoding::Quantised(record)
            }
            _ => plain,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recipe::F16 => "f16",
            Recipe::Blocks(record) | Recipe::Mlx(record) => record.spellings[0],
            Recipe::Mixed(file) => file.name(),
        })
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
        assert_eq!(
            Recipe::by_name("MLX4-G32").and_then(Recipe::affine).map(|r| r.name),
            Some("mlx4g32")
        );
        assert_eq!(Recipe::by_name("mlx7"), None);
    }
}
