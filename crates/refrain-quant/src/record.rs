use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{QuantFormat, QuantPlanes, ScaleType};

/// All that is known of a quantised format. Records are the same if their names are.
#[derive(Clone, Copy)]
pub struct QuantRecord {
    /// What plans and tables call it.
    pub name: &'static str,
    /// What descriptions of files call it: of GGUF's formats the name of the type.
    pub label: &'static str,
    /// What users may type, in lower case; the first is what they are told.
    pub spellings: &'static [&'static str],
    /// How it lies in memory.
    pub format: QuantFormat,
    /// GGUF's blocks of it.
    pub block: Option<GgufBlock>,
    /// What MLX's `mode` calls it, where directories may hold it: words of quants, and scales (and biases) apart.
    pub mode: Option<&'static str>,
    /// How scales are made up.
    pub random: RandomScales,
}

/// Quantises values to a block; `None` if one lies outside of what it can hold.
pub type EncodeBlock = fn(&[f32], &mut [u8]) -> Option<()>;

/// How GGUF stores a format: blocks of values along the last axis.
#[derive(Clone, Copy)]
pub struct GgufBlock {
    /// The number of the type in the list of tensors.
    pub kind: u32,
    /// `general.file_type` of files whose matrices are of this type.
    pub file_type: u32,
    /// Values of a block.
    pub values: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Writes a block's values to the plane of quants.
    pub repack: fn(&[u8], &mut [u8]),
    /// The opposite of `repack`: writes values to their places in a block whose other bytes are left as they are.
    pub restore: fn(&[u8], &mut [u8]),
    /// Writes a block's scale, or its record, to the plane of scales.
    pub scale: fn(&[u8], &mut [u8]),
    /// The opposite of `scale`.
    pub store_scale: fn(&[u8], &mut [u8]),
    /// Where an f16 bias lies in it, where the format has biases.
    pub bias_at: Option<usize>,
    /// How values become a block, if they can; without the feature `encode` none of those here says how.
    pub encode: Option<EncodeBlock>,
    /// The name of what stands in for it where rows are not whole blocks.
    pub stand_in: Option<&'static str>,
}

/// How random bits become scales, so that a matrix of random quants has values with a standard deviation near 0.02 and
/// the mean 0.
#[derive(Clone, Copy)]
pub enum RandomScales {
    /// 2-byte floats: which of their bits are random, and the others.
    Floats {
        /// Random bits.
        random: u16,
        /// Bits that are set.
        fixed: u16,
    },
    /// Records: f16 factors with random mantissas, and integers from `least` on.
    Records {
        /// The exponents' bits.
        exponent: u16,
        /// Random bits of each byte of integers.
        random: u8,
        /// What is added to them.
        least: u8,
        /// Whether as many become −1 − n.
        with_signs: bool,
    },
    /// Bytes, of which a quarter are one less than usual.
    Bytes {
        /// The usual byte.
        usual: u8,
    },
}

/// The largest block, repacked.
const MOST_QUANTS: usize = 256;
/// The largest unit of scales.
const MOST_SCALES: usize = 64;

impl QuantRecord {
    /// Bytes that the values of a block take in the plane of quants.
    pub fn block_quants(&self) -> usize {
        self.block
            .map_or(0, |block| block.values * self.format.bits as usize / 8)
    }

    /// The values of one GGUF block; nothing where the format has none.
    pub fn dequantise_block(&self, bytes: &[u8], out: &mut [f32]) {
        let Some(block) = self.block else { return };
        let (mut quants, mut scales) = ([0; MOST_QUANTS], [0; MOST_SCALES]);
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

    /// Whether the matrix lies in several tensors of a directory as MLX writes them.
    pub fn is_mlx_affine(&self) -> bool {
        self.mode == Some("affine")
    }

    /// The first factor in the scales of one unit that is no number.
    pub fn odd_factor(&self, stored: ScaleType, unit: &[u8]) -> Option<f32> {
        let odd = |factor: &f32| !factor.is_finite();
        if self.format.has_records() {
            let factors = unit.chunks_exact(2).take(2).map(|bytes| ScaleType::F16.read(bytes));
            return factors.into_iter().find(odd);
        }
        Some(stored.read(unit)).filter(odd)
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
