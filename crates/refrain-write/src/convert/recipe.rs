//! Target formats, and the encoding of each tensor.

use std::fmt;

use refrain_formats::mixed::{self, QuantMix};
use refrain_formats::{Encoding, TensorInfo};
use refrain_models::ModelConfig;
use refrain_models::config::{is_norm, is_router};
use refrain_quant::QuantRecord;

use super::experts;

/// A format that a checkpoint can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// Half precision, in a GGUF file or a directory.
    F16,
    /// A GGUF file of one block format.
    Blocks(&'static QuantRecord),
    /// A GGUF file of several block formats.
    Mixed(QuantMix),
    /// A directory quantised by MLX's scheme.
    Mlx(&'static QuantRecord),
}

/// Block formats for whole files: those with more bits than the mixed formats, and those with fewer.
const BLOCK_FORMATS: [&[&str]; 2] = [&["q8_0", "q6_k"], &["q4_0", "iq4_nl", "iq4_xs", EXPERT_FORMAT]];

/// The block format of experts only; all other tensors use 8 bits.
const EXPERT_FORMAT: &str = "mxfp4";

impl Recipe {
    /// Returns all recipes except MLX's with group sizes other than 64: GGUF's first, each from the largest files
    /// to the smallest.
    pub fn all() -> impl Iterator<Item = Recipe> {
        let [more, fewer] = BLOCK_FORMATS.map(|names| {
            let records = names.iter().filter_map(|name| refrain_quant::by_name(name));
            records.map(Recipe::Blocks)
        });
        let mixed = QuantMix::ALL.into_iter().map(Recipe::Mixed);
        // Those with a name that omits the group size.
        let named = refrain_quant::records().filter(|r| r.is_mlx_affine() && r.spellings.len() > 1);
        let mut mlx = Vec::from_iter(named);
        mlx.sort_by_key(|record| std::cmp::Reverse(record.format.bits));
        let gguf = [Recipe::F16].into_iter().chain(more).chain(mixed).chain(fewer);
        gguf.chain(mlx.into_iter().map(Recipe::Mlx))
    }

    /// Returns the names of MLX formats with an explicit group size.
    pub fn grouped() -> impl Iterator<Item = &'static str> {
        let mlx = refrain_quant::records().filter(|record| record.is_mlx_affine());
        mlx.filter_map(|record| record.spellings.last().copied())
    }

    /// Finds a recipe by name, ignoring case, such as `Q4_0`, `mlx4` or `mlx4-g32`.
    pub fn by_name(name: &str) -> Option<Recipe> {
        let name = name.to_ascii_lowercase();
        let found = Recipe::all().find(|recipe| recipe.to_string() == name);
        let mlx = || refrain_quant::by_spelling(&name).filter(|record| record.is_mlx_affine());
        found.or_else(|| mlx().map(Recipe::Mlx))
    }

    /// Whether it writes a GGUF file; `wanted` if it can write both.
    pub(super) fn is_gguf(self, wanted: bool) -> bool {
        match self {
            Recipe::F16 => wanted,
            Recipe::Mlx(_) => false,
            Recipe::Blocks(_) | Recipe::Mixed(_) => true,
        }
    }

    /// Returns MLX's format, if it is one.
    pub(super) fn affine(self) -> Option<&'static QuantRecord> {
        match self {
            Recipe::Mlx(record) => Some(record),
            _ => None,
        }
    }

    /// Whether values get fewer bits than half precision.
    pub(super) fn is_quantised(self) -> bool {
        self != Recipe::F16
    }

    /// Returns llama.cpp's number of the format (`general.file_type`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            Recipe::Blocks(record) => record.block.map_or(1, |block| block.file_type),
            Recipe::Mixed(file) => file.file_type(),
            _ => 1,
        }
    }

    /// Returns a tensor's encoding in a GGUF file, as llama.cpp's quantiser chooses it.
    pub(super) fn gguf_encoding(self, config: &ModelConfig, tensor: &TensorInfo) -> Encoding {
        if tensor.shape.len() == 1
            || is_router(&tensor.name)
            || is_norm(&tensor.name)
            || tensor.name.ends_with("conv1d.weight")
        {
            return Encoding::F32;
        }
        let (columns, context) = (tensor.columns(), config.quant_context());
        let wanted = match self {
            Recipe::Blocks(record) if record.name == EXPERT_FORMAT && !experts::is_expert_tensor(&tensor.name) => {
                Encoding::named("q8_0")
            }
            Recipe::Blocks(record) if record.format.bits <= 4 && mixed::is_output(context, &tensor.name) => {
                mixed::output_head()
            }
            Recipe::Blocks(record) => Encoding::Quantised(record),
            Recipe::Mixed(file) => file.encoding(context, &tensor.name),
            _ => Encoding::F16,
        };
        match mixed::for_columns(wanted, columns) {
            encoding if columns.is_multiple_of(encoding.block_values()) => encoding,
            _ => Encoding::F16,
        }
    }

    /// Returns a tensor's encoding in a directory; `plain` is that of unquantised tensors.
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
    fn finds_recipes_by_name_ignoring_case() {
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
