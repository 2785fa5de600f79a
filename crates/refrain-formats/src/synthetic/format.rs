//! Weight formats of synthetic checkpoints, by name.

use refrain_quant::QuantRecord;

use crate::mixed::{self, QuantContext, QuantMix};
use crate::{Encoding, Format};

/// Weight format of a synthetic checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SyntheticFormat {
    /// All matrices have the same encoding.
    Uniform(Encoding),
    /// A mix of encodings, as in a GGUF file.
    Mixed(QuantMix),
}

/// Unquantised formats by name.
const FLOATS: [(&str, Encoding); 3] = [("f32", Encoding::F32), ("f16", Encoding::F16), ("bf16", Encoding::BF16)];

/// The mix that synthetic checkpoints support.
const MIXED: QuantMix = QuantMix::DEFAULT;

/// Names of all formats, GGUF's before MLX's. MLX names may end in a group size.
pub(super) fn names() -> Vec<&'static str> {
    let floats = FLOATS.iter().map(|(name, _)| *name);
    let told = |record: &&QuantRecord| record.block.is_some() || record.spellings.len() > 1;
    let (blocks, others): (Vec<_>, Vec<_>) = (refrain_quant::records().filter(told)).partition(|r| r.block.is_some());
    let spelling = |record: &QuantRecord| record.spellings[0];
    let mut names = Vec::from_iter(floats.chain(blocks.into_iter().map(spelling)));
    names.push(MIXED.name());
    names.extend(others.into_iter().map(spelling));
    names
}

impl SyntheticFormat {
    /// Parses a format name such as `q4_0`, `mlx4` or `mlx4-g32`. Case-insensitive.
    pub fn by_name(name: &str) -> Option<SyntheticFormat> {
        let name = name.to_ascii_lowercase();
        if name == MIXED.name() {
            return Some(SyntheticFormat::Mixed(MIXED));
        }
        let float = FLOATS.iter().find(|(float, _)| *float == name);
        let record = || refrain_quant::by_spelling(&name).map(Encoding::Quantised);
        let encoding = float.map(|(_, encoding)| *encoding).or_else(record);
        encoding.map(SyntheticFormat::Uniform)
    }

    /// Kind of checkpoint that has this format.
    pub fn format(self) -> Format {
        match self {
            SyntheticFormat::Mixed(_) => Format::Gguf,
            SyntheticFormat::Uniform(encoding) if encoding.block().is_some() => Format::Gguf,
            SyntheticFormat::Uniform(Encoding::Quantised(_)) => Format::Mlx,
            SyntheticFormat::Uniform(_) => Format::Safetensors,
        }
    }

    /// MLX's affine format, if it is one.
    pub fn affine(self) -> Option<&'static QuantRecord> {
        match self {
            SyntheticFormat::Uniform(Encoding::Quantised(record)) if record.is_mlx_affine() => Some(record),
            _ => None,
        }
    }

    /// Encoding of the matrix `name` with `columns` columns.
    pub fn matrix_encoding(self, place: QuantContext, name: &str, columns: usize) -> Encoding {
        match self {
            SyntheticFormat::Uniform(encoding) => mixed::for_columns(encoding, columns),
            SyntheticFormat::Mixed(file) => mixed::for_columns(file.encoding(place, name), columns),
        }
    }

    /// Encoding of the norms' weights, as converters to each format choose it.
    pub fn vector_encoding(self) -> Encoding {
        match (self.format(), self) {
            (Format::Mlx, _) => Encoding::BF16,
            (Format::Safetensors, SyntheticFormat::Uniform(encoding)) => encoding,
            _ => Encoding::F32,
        }
    }

    /// GGUF's file type number (`general.file_type`).
    pub fn file_type(self) -> u32 {
        match self {
            SyntheticFormat::Mixed(file) => file.file_type(),
            SyntheticFormat::Uniform(Encoding::F16) => 1,
            SyntheticFormat::Uniform(Encoding::BF16) => 32,
            SyntheticFormat::Uniform(encoding) => encoding.block().map_or(0, |block| block.file_type),
        }
    }
}
