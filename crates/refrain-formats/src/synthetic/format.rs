//! How the weights of a synthetic checkpoint are stored, by name.

use refrain_quant::QuantRecord;

use crate::mixed::{self, MatrixPlace, MixedFile};
use crate::{Encoding, Format};

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SyntheticFormat {
    /// All matrices alike.
    Alike(Encoding),
    /// As in a GGUF file of several formats.
    Mixed(MixedFile),
}

/// Floats, by their names.
const FLOATS: [(&str, Encoding); 3] = [("f32", Encoding::F32), ("f16", Encoding::F16), ("bf16", Encoding::BF16)];

/// The mixture that there are synthetic checkpoints of.
const MIXED: MixedFile = MixedFile::USUAL;

/// Names of all formats, GGUF's first. Those of MLX may end in a group size.
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
    /// The format of a name, such as `q4_0`, `mlx4` or `mlx4-g32`, in any case of letters.
    pub fn by_name(name: &str) -> Option<SyntheticFormat> {
        let name = name.to_ascii_lowercase();
        if name == MIXED.name() {
            return Some(SyntheticFormat::Mixed(MIXED));
        }
        let float = FLOATS.iter().find(|(float, _)| *float == name);
        let record = || refrain_quant::by_spelling(&name).map(Encoding::Quantised);
        let encoding = float.map(|(_, encoding)| *encoding).or_else(record);
        encoding.map(SyntheticFormat::Alike)
    }

    /// The kind of checkpoint that the format belongs to.
    pub fn format(self) -> Format {
        match self {
            SyntheticFormat::Mixed(_) => Format::Gguf,
            SyntheticFormat::Alike(encoding) if encoding.block().is_some() => Format::Gguf,
            SyntheticFormat::Alike(Encoding::Quantised(_)) => Format::Mlx,
            SyntheticFormat::Alike(_) => Format::Safetensors,
        }
    }

    /// MLX's format, if it is one.
    pub fn affine(self) -> Option<&'static QuantRecord> {
        match self {
            SyntheticFormat::Alike(Encoding::Quantised(record)) if record.is_mlx_affine() => Some(record),
            _ => None,
        }
    }

    /// How the matrix `name` of so many columns is stored.
    pub fn of_matrix(self, place: MatrixPlace, name: &str, columns: usize) -> Encoding {
        match self {
            SyntheticFormat::Alike(encoding) => mixed::for_columns(encoding, columns),
            SyntheticFormat::Mixed(file) => mixed::for_columns(file.encoding(place, name), columns),
        }
    }

    /// How the norms' weights are stored: as converters to each format do it.
    pub fn of_vectors(self) -> Encoding {
        match (self.format(), self) {
            (Format::Mlx, _) => Encoding::BF16,
            (Format::Safetensors, SyntheticFormat::Alike(encoding)) => encoding,
            _ => Encoding::F32,
        }
    }

    /// GGUF's number of the kind of file (`general.file_type`).
    pub fn file_type(self) -> u32 {
        match self {
            SyntheticFormat::Mixed(file) => file.file_type(),
            SyntheticFormat::Alike(Encoding::F16) => 1,
            SyntheticFormat::Alike(Encoding::BF16) => 32,
            SyntheticFormat::Alike(encoding) => encoding.block().map_or(0, |block| block.file_type),
        }
    }
}
