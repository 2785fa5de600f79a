//! How the weights of a synthetic checkpoint are stored, by name.

use crate::gguf::mixture::{self, MixedFile};
use crate::{Encoding, Format, ModelConfig, mlx};

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SyntheticFormat {
    /// All matrices alike.
    Alike(Encoding),
    /// GGUF's Q4_K_M.
    Q4KM,
}

/// Names of all formats. Those of MLX may end in a group size.
pub(super) const NAMES: [&str; 20] = [
    "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q4_k_m",
    "mlx2", "mlx3", "mlx4", "mlx5", "mlx6", "mlx8",
];

impl SyntheticFormat {
    /// The format of a name, such as `q4_k_m`, `mlx4` or `mlx4-g32`, in any case of letters.
    pub(super) fn by_name(name: &str) -> Option<SyntheticFormat> {
        let encoding = match &name.to_ascii_lowercase()[..] {
            "f32" => Encoding::F32,
            "f16" => Encoding::F16,
            "bf16" => Encoding::BF16,
            "q8_0" => Encoding::Q8_0,
            "q4_0" => Encoding::Q4_0,
            "q4_1" => Encoding::Q4_1,
            "q5_0" => Encoding::Q5_0,
            "q5_1" => Encoding::Q5_1,
            "q2_k" => Encoding::Q2_K,
            "q3_k" => Encoding::Q3_K,
            "q4_k" => Encoding::Q4_K,
            "q5_k" => Encoding::Q5_K,
            "q6_k" => Encoding::Q6_K,
            "q4_k_m" => return Some(SyntheticFormat::Q4KM),
            name => {
                let (bits, group) = mlx::by_name(name)?;
                Encoding::MlxAffine { bits, group }
            }
        };
        Some(SyntheticFormat::Alike(encoding))
    }

    /// The kind of checkpoint that the format belongs to.
    pub(super) fn format(self) -> Format {
        match self {
            SyntheticFormat::Alike(Encoding::MlxAffine { .. }) => Format::Mlx,
            SyntheticFormat::Alike(encoding) if encoding.block_bytes().is_none() => Format::Safetensors,
            _ => Format::Gguf,
        }
    }

    /// Bits and group size of MLX's formats.
    pub(super) fn affine(self) -> Option<(u8, u16)> {
        match self {
            SyntheticFormat::Alike(Encoding::MlxAffine { bits, group }) => Some((bits, group)),
            _ => None,
        }
    }

    /// How the matrix `name` of so many columns is stored.
    pub(super) fn of_matrix(self, config: &ModelConfig, name: &str, columns: usize) -> Encoding {
        match self {
            SyntheticFormat::Alike(encoding) => mixture::for_columns(encoding, columns),
            SyntheticFormat::Q4KM => mixture::for_columns(MixedFile::Q4KM.encoding(config, name), columns),
        }
    }

    /// How the norms' gains are stored: as converters to each format do it.
    pub(super) fn of_vectors(self) -> Encoding {
        match (self.format(), self) {
            (Format::Mlx, _) => Encoding::BF16,
            (Format::Safetensors, SyntheticFormat::Alike(encoding)) => encoding,
            _ => Encoding::F32,
        }
    }

    /// GGUF's number of the kind of file (`general.file_type`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            SyntheticFormat::Q4KM => 15,
            SyntheticFormat::Alike(encoding) => match encoding {
                Encoding::F16 => 1,
                Encoding::Q4_0 => 2,
                Encoding::Q4_1 => 3,
                Encoding::Q8_0 => 7,
                Encoding::Q5_0 => 8,
                Encoding::Q5_1 => 9,
                Encoding::Q2_K => 10,
                Encoding::Q3_K => 11,
                Encoding::Q4_K => 14,
                Encoding::Q5_K => 16,
                Encoding::Q6_K => 18,
                Encoding::BF16 => 32,
                _ => 0,
            },
        }
    }
}
