//! Random scales, such that the weights of every format have mean 0 and a standard deviation near 0.02.
//!
//! A scale's bits are random except its exponent, which keeps it between a power of two and 1.5 times that. If the
//! quants are not symmetric around 0, the scales have random signs.

use half::f16;
use refrain_quant::{Code, QuantRecord, RandomScales, ScaleType, Scales};

/// Size in bytes of a record: two f16 factors and up to 16 integers.
const MAX_RECORD_BYTES: usize = 20;

/// Storage type of a format's scales (and biases).
pub(super) fn scale_type(of: &QuantRecord) -> ScaleType {
    if of.mode.is_some() && of.format.scales == Scales::Float {
        return ScaleType::BF16;
    }
    of.format.scale_type()
}

/// Eight bytes of scales.
pub(super) fn scales(of: RandomScales, word: u64) -> u64 {
    match of {
        RandomScales::Floats { random, fixed } => (word & lanes(random)) | lanes(fixed),
        RandomScales::Bytes { typical } => bytes(typical) - (word & word >> 1 & bytes(1)),
        RandomScales::Records { .. } => word,
    }
}

/// The biases of four groups with scales from the same word: they map the middle quant to 0.
pub(super) fn biases(of: &QuantRecord, word: u64) -> u64 {
    let (scales, mut biases) = (scales(of.random, word), 0);
    let mean = quant_mean(of);
    for shift in [0, 16, 32, 48] {
        let scale = (scales >> shift) as u16;
        let bias = match scale_type(of) {
            // bf16 is the upper half of f32.
            ScaleType::BF16 => ((-mean * f32::from_bits(u32::from(scale) << 16)).to_bits() >> 16) as u16,
            _ => f16::from_f32(-mean * f16::from_bits(scale).to_f32()).to_bits(),
        };
        biases |= u64::from(bias) << shift;
    }
    biases
}

/// A record of two-level scales from three random words.
pub(super) fn record(of: &QuantRecord, words: [u64; 3]) -> [u8; MAX_RECORD_BYTES] {
    let mut record = [0; MAX_RECORD_BYTES];
    let RandomScales::Records {
        exponent,
        random,
        min,
        with_signs,
    } = of.random
    else {
        return record;
    };
    let integers = |word: u64| {
        let integers = (word & bytes(random)) + bytes(min);
        if with_signs { signed(integers, word) } else { integers }
    };
    let d = f16::from_bits((words[0] as u16 & 0x01ff) | exponent << 10);
    let m = match of.format.code {
        Code::Bias => f16::from_f32(quant_mean(of) * d.to_f32()),
        _ => f16::ZERO,
    };
    record[..2].copy_from_slice(&d.to_le_bytes());
    record[2..4].copy_from_slice(&m.to_le_bytes());
    record[4..12].copy_from_slice(&integers(words[1]).to_le_bytes());
    record[12..].copy_from_slice(&integers(words[2]).to_le_bytes());
    record
}

/// Mean of all quants.
fn quant_mean(of: &QuantRecord) -> f32 {
    f32::from((1u16 << of.format.bits) - 1) / 2.0
}

/// Four 2-byte numbers in one word.
pub(super) const fn lanes(number: u16) -> u64 {
    number as u64 * 0x0001_0001_0001_0001
}

/// Eight bytes in one word.
const fn bytes(number: u8) -> u64 {
    number as u64 * 0x0101_0101_0101_0101
}

/// Replaces each byte n of `numbers` whose highest bit in `word` is set with −1 − n.
fn signed(numbers: u64, word: u64) -> u64 {
    numbers ^ ((word >> 7 & bytes(1)) * 0xff)
}
