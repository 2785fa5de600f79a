//! Random weights, generated on each read.
//!
//! Word k of a plane (8 bytes) is number k of a SplitMix64 sequence (Steele, Lea and Flood 2014, "Fast splittable
//! pseudorandom number generators"). The sequence starts at a hash of the tensor's name, so any range can be
//! generated alone.
//!
//! The random bits become numbers by a mask. A matrix's values have mean 0 and a standard deviation near 0.02; a
//! norm's weights lie between 0.9 and 1.1. Other vectors have ranges that are typical of models.

use half::{bf16, f16};
use refrain_quant::Code;

use super::scales::{self, lanes};
use crate::Encoding;
use crate::blocks::{for_units, in_chunks};

/// The increment of SplitMix64's state.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One tensor of random values.
#[derive(Debug, Clone)]
pub struct RandomTensor {
    seed: u64,
    values: usize,
    encoding: Encoding,
    /// Minimum and width of the range, for tensors that are not matrices.
    range: Option<[f32; 2]>,
}

impl RandomTensor {
    /// Creates a tensor whose range depends on its name. `offset` is subtracted from norms' weights.
    pub fn new(name: &str, shape: &[usize], encoding: Encoding, offset: f32) -> Self {
        RandomTensor {
            seed: name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte))),
            values: shape.iter().product(),
            encoding,
            range: match name.rsplit('.').find(|part| *part != "weight") {
                Some("A_log") => Some([-4.0, 3.0]),
                Some("dt_bias") => Some([-1.0, 2.0]),
                Some("conv1d") => Some([-0.7, 1.4]),
                Some("bias") => Some([-0.1, 0.2]),
                _ if shape.len() > 1 => None,
                _ if name.ends_with("linear_attn.norm.weight") => Some([0.9, 0.2]),
                _ => Some([0.9 - offset, 0.2]),
            },
        }
    }

    /// The same with values from −2 to 0: decay rates of heads.
    pub fn with_decay_range(self) -> Self {
        RandomTensor {
            range: Some([-2.0, 1.99]),
            ..self
        }
    }

    /// Size in a file, in bytes.
    pub fn bytes(&self) -> u64 {
        if let Some(bytes) = self.encoding.block_bytes() {
            return (self.values / self.encoding.block_values() * bytes) as u64;
        }
        let quants = self.values * self.encoding.quant_bits().unwrap_or(0) / 8;
        self.data_bytes() + quants as u64 + self.scales_bytes() + self.biases_bytes()
    }

    /// Bytes of the data plane; 0 if quantised.
    pub(crate) fn data_bytes(&self) -> u64 {
        (self.values * self.encoding.value_bytes().unwrap_or(0)) as u64
    }

    /// Bytes of the scales plane; 0 if not quantised.
    pub(crate) fn scales_bytes(&self) -> u64 {
        let Some(record) = self.encoding.quantised() else {
            return 0;
        };
        let format = record.format;
        (self.values / format.unit() * format.scale_bytes(scales::scale_type(record))) as u64
    }

    /// Bytes of the biases plane; 0 unless the encoding has one.
    pub(crate) fn biases_bytes(&self) -> u64 {
        match self.encoding.quantised() {
            Some(record) if record.format.has_biases() => self.scales_bytes(),
            _ => 0,
        }
    }

    /// Encoding of scales and biases.
    pub(crate) fn scale_encoding(&self) -> Option<Encoding> {
        let record = self.encoding.quantised()?;
        Some(Encoding::from_scale_type(scales::scale_type(record)))
    }

    /// Generates the bytes of the data plane from `start`.
    pub(crate) fn write_data(&self, start: usize, out: &mut [u8]) {
        let seed = self.plane(0);
        match (self.range, self.encoding) {
            (Some(range), Encoding::F32) => for_units(4, start, out, |index, unit| {
                unit.copy_from_slice(&value(seed, index, range).to_le_bytes());
            }),
            (Some(range), Encoding::BF16) => for_units(2, start, out, |index, unit| {
                unit.copy_from_slice(&bf16::from_f32(value(seed, index, range)).to_le_bytes());
            }),
            (Some(range), _) => for_units(2, start, out, |index, unit| {
                unit.copy_from_slice(&f16::from_f32(value(seed, index, range)).to_le_bytes());
            }),
            // Random signs and mantissas; exponents uniform from 2^-12 to 2^-5.
            (None, Encoding::F32) => fill(seed, start, out, |word| {
                (word & 0x83ff_ffff_83ff_ffff) + ((115 << 55) | (115 << 23))
            }),
            (None, Encoding::BF16) => fill(seed, start, out, |word| (word & lanes(0x83ff)) + lanes(115 << 7)),
            (None, _) => fill(seed, start, out, |word| (word & lanes(0x9fff)) + lanes(3 << 10)),
        }
    }

    /// Generates the bytes of the quants plane from `start`.
    pub(crate) fn write_quants(&self, start: usize, out: &mut [u8]) {
        let format = self.encoding.quantised().map(|record| record.format);
        match format {
            // Odd numbers have mean 0, and avoid −128, which no quantiser writes.
            Some(format) if format.code == Code::Signed => fill(self.plane(1), start, out, |word| word | lanes(0x0101)),
            _ => fill(self.plane(1), start, out, |word| word),
        }
    }

    /// Generates the bytes of the scales plane from `start`.
    pub(crate) fn write_scales(&self, start: usize, out: &mut [u8]) {
        let seed = self.plane(2);
        let Some(record) = self.encoding.quantised() else {
            return;
        };
        if record.format.has_records() {
            let size = record.format.scale_bytes(scales::scale_type(record));
            return in_chunks(start, out, |start, piece| {
                for_units(size, start, piece, |index, unit| {
                    let made = scales::record(record, [0, 1, 2].map(|k| word(seed, 3 * index + k)));
                    unit.copy_from_slice(&made[..unit.len()]);
                });
            });
        }
        fill(seed, start, out, |word| scales::scales(record.random, word));
    }

    /// Generates the bytes of the biases plane from `start`.
    pub(crate) fn write_biases(&self, start: usize, out: &mut [u8]) {
        if let Some(record) = self.encoding.quantised() {
            fill(self.plane(2), start, out, |word| scales::biases(record, word));
        }
    }

    /// The seed of a plane.
    fn plane(&self, number: u64) -> u64 {
        mix(self.seed ^ number)
    }
}

/// Value `index`, uniform in a range given by minimum and width.
fn value(seed: u64, index: usize, [min, span]: [f32; 2]) -> f32 {
    let unit = (word(seed, index) >> 40) as f32 / (1 << 24) as f32;
    min + span * unit
}

/// Word `index` of the sequence of a seed.
#[inline]
fn word(seed: u64, index: usize) -> u64 {
    mix(seed.wrapping_add((index as u64).wrapping_mul(GOLDEN)))
}

/// SplitMix64's mixing function.
#[inline]
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills `out`, which starts at byte `start` of a plane, with the sequence's words mapped by `number`.
fn fill(seed: u64, start: usize, out: &mut [u8], number: impl Fn(u64) -> u64 + Sync) {
    in_chunks(start, out, |start, piece| {
        for_units(8, start, piece, |index, unit| {
            unit.copy_from_slice(&number(word(seed, index)).to_le_bytes());
        });
    });
}
