//! How the weights of a synthetic checkpoint are stored, by name.

use crate::gguf::mixture;
use crate::{Encoding, Format, ModelConfig};

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weights {
    /// All matrices alike.
    Alike(Encoding),
    /// GGUF's Q4_K_M.
    Q4KM,
}

/// Names of all formats. Those of MLX may end in a group size: see [`GROUPS`].
pub(super) const NAMES: [&str; 20] = [
    "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q4_k_m",
    "mlx2", "mlx3", "mlx4", "mlx5", "mlx6", "mlx8",
];

/// What names of MLX's formats may end in, and the values that share a scale then; 64 without.
const GROUPS: [(&str, u16); 4] = [("", 64), ("-g32", 32), ("-g64", 64), ("-g128", 128)];

impl Weights {
    /// The format of a name, such as `q4_k_m`, `mlx4` or `mlx4-g32`.
    pub(super) fn by_name(name: &str) -> Option<Weights> {
        let encoding = match name {
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
            "q4_k_m" => return Some(Weights::Q4KM),
            _ => mlx(name)?,
        };
        Some(Weights::Alike(encoding))
    }

    /// The kind of checkpoint that the format belongs to.
    pub(super) fn format(self) -> Format {
        match self {
            Weights::Alike(Encoding::MlxAffine { .. }) => Format::Mlx,
            Weights::Alike(encoding) if encoding.block_bytes().is_none() => Format::Safetensors,
            _ => Format::Gguf,
        }
    }

    /// Bits and group size of MLX's formats.
    pub(super) fn affine(self) -> Option<(u8, u16)> {
        match self {
            Weights::Alike(Encoding::MlxAffine { bits, group }) => Some((bits, group)),
            _ => None,
        }
    }

    /// How the matrix `name` of so many columns is stored.
    pub(super) fn of_matrix(self, config: &ModelConfig, name: &str, columns: usize) -> Encoding {
        match self {
            Weights::Alike(encoding) => mixture::for_columns(encoding, columns),
            Weights::Q4KM => mixture::q4_k_m(config, name, columns),
        }
    }

    /// How the norms' gains are stored: as converters to each format do it.
    pub(super) fn of_vectors(self) -> Encoding {
        match (self.format(), self) {
            (Format::Mlx, _) => Encoding::BF16,
            (Format::Safetensors, Weights::Alike(encoding)) => encoding,
            _ => Encoding::F32,
        }
    }

    /// GGUF's number of the kind of file (`general.file_type`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            Weights::Q4KM => 15,
            Weights::Alike(encoding) => match encoding {
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

fn mlx(name: &str) -> Option<Encoding> {
    let (bits, rest) = name.strip_prefix("mlx")?.split_at_checked(1)?;
    let bits = bits.parse().ok().filter(|bits| [2, 3, 4, 5, 6, 8].contains(bits))?;
    let (_, group) = GROUPS.into_iter().find(|(suffix, _)| *suffix == rest)?;
    Some(Encoding::MlxAffine { bits, group })
}
