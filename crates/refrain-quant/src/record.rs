use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{QuantFormat, QuantPlanes, ScaleType};

/// Everything the workspace knows about one quantised format. Records are equal if their names are.
#[derive(Clone, Copy)]
pub struct QuantRecord {
    /// Identifier in plans and in tuning tables.
    pub name: &'static str,
    /// Display name in descriptions of files. For GGUF formats it is the name of the tensor type.
    pub label: &'static str,
    /// Names that a user may type, in lower case. The first is the one that is printed.
    pub spellings: &'static [&'static str],
    /// Layout in memory.
    pub format: QuantFormat,
    /// Block layout in GGUF files; `None` if GGUF does not have the format.
    pub block: Option<GgufBlock>,
    /// Value of `mode` in an MLX directory, which stores quants, scales and biases as separate tensors; `None` if MLX
    /// does not have the format.
    pub mode: Option<&'static str>,
    /// Distribution of random scales, for synthetic models.
    pub random: RandomScales,
}

/// Quantises values to a block. Returns `None` if a value is out of range.
pub type EncodeBlock = fn(&[f32], &mut [u8]) -> Option<()>;

/// Block layout of a format in GGUF files. Blocks run along the last axis.
#[derive(Clone, Copy)]
pub struct GgufBlock {
    /// GGML's number of the tensor type.
    pub kind: u32,
    /// `general.file_type` of files whose matrices have this type.
    pub file_type: u32,
    /// Values per block.
    pub values: usize,
    /// Bytes per block.
    pub bytes: usize,
    /// Writes a block's values to the plane of quants.
    pub repack: fn(&[u8], &mut [u8]),
    /// Inverse of `repack`: writes values to a block and leaves the block's other bytes alone.
    pub restore: fn(&[u8], &mut [u8]),
    /// Writes a block's scale, or its record, to the plane of scales.
    pub scale: fn(&[u8], &mut [u8]),
    /// Inverse of `scale`.
    pub store_scale: fn(&[u8], &mut [u8]),
    /// Byte offset of the block's f16 bias; `None` if the format has no biases.
    pub bias_at: Option<usize>,
    /// Encoder; `None` if there is none, or without the feature `encode`.
    pub encode: Option<EncodeBlock>,
    /// Name of the format that replaces this one where rows are not whole blocks.
    pub fallback: Option<&'static str>,
}

/// How random bits become scales. A matrix of random quants then has mean 0 and a standard deviation near 0.02.
#[derive(Clone, Copy)]
pub enum RandomScales {
    /// 2-byte floats.
    Floats {
        /// Mask of the random bits.
        random: u16,
        /// Bits that are always set.
        fixed: u16,
    },
    /// Records: f16 factors with random mantissas, and integers of at least `min`.
    Records {
        /// Exponent bits of the factors.
        exponent: u16,
        /// Mask of the random bits of each integer.
        random: u8,
        /// Offset that is added to the random bits.
        min: u8,
        /// Whether half of the integers `n` become −1 − n.
        with_signs: bool,
    },
    /// Bytes. A quarter of them are one less than `typical`.
    Bytes {
        /// The most frequent byte.
        typical: u8,
    },
}

/// Upper bound of [`QuantRecord::block_quants`], in bytes.
const MAX_BLOCK_QUANT_BYTES: usize = 256;
/// Upper bound of the scales of one [`QuantFormat::unit`], in bytes.
const MAX_UNIT_SCALE_BYTES: usize = 64;

impl QuantRecord {
    /// Bytes that a block's values take in the plane of quants; 0 if GGUF does not have the format.
    pub fn block_quants(&self) -> usize {
        self.block
            .map_or(0, |block| block.values * self.format.bits as usize / 8)
    }

    /// Dequantises one GGUF block. Does nothing if GGUF does not have the format.
    pub fn dequantise_block(&self, bytes: &[u8], out: &mut [f32]) {
        let Some(block) = self.block else { return };
        let (mut quants, mut scales) = ([0; MAX_BLOCK_QUANT_BYTES], [0; MAX_UNIT_SCALE_BYTES]);
        let stored = self.format.scale_type();
        let quants = &mut quants[..self.block_quants()];
        let scales = &mut scales[..self.format.scale_bytes(stored)];
        (block.repack)(bytes, quants);
        (block.scale)(bytes, scales);
        let planes = QuantPlanes {
            format: self.format,
            stored,
            quants,
            scales,
            biases: block.bias_at.map_or(&[], |at| &bytes[at..at + 2]),
        };
        planes.read(0, out);
    }

    /// Whether this is MLX's affine format, whose matrices take several tensors in MLX directories.
    pub fn is_mlx_affine(&self) -> bool {
        self.mode == Some("affine")
    }

    /// Returns the first scale (or factor) of one unit that is infinite or NaN.
    pub fn non_finite_scale(&self, stored: ScaleType, unit: &[u8]) -> Option<f32> {
        let non_finite = |factor: &f32| !factor.is_finite();
        if self.format.has_records() {
            let factors = unit.chunks_exact(2).take(2).map(|bytes| ScaleType::F16.read(bytes));
            return factors.into_iter().find(non_finite);
        }
        Some(stored.read(unit)).filter(non_finite)
    }
}

impl PartialEq for QuantRecord {
    fn eq(&self, other: &QuantRecord) -> bool {
        self.name == other.name
    }
}

impl Eq for QuantRecord {}

impl Hash for QuantRecord {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for QuantRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}
