//! Random bits made scales: of each format such that its weights have a standard deviation near 0.02 and the
//! mean 0. A scale's bits are random but for its exponent, which keeps it between a power of two and one and
//! a half times as much; where quants are not as often negative as positive, scales are.

use half::f16;
use refrain_quant::{Code, QuantRecord, RandomScales, ScaleType, Scales};

/// A record of two f16 factors and at most 16 integers.
const MOST_RECORD: usize = 20;

/// How scales (and biases) of a format are stored.
pub(super) fn stored(of: &QuantRecord) -> ScaleType {
    if of.mode.is_some() && of.format.scales == Scales::Float {
        return ScaleType::BF16;
    }
    of.format.scale_type()
}

/// Eight bytes of scales.
pub(super) fn scales(of: RandomScales, word: u64) -> u64 {
    match of {
        RandomScales::Floats { random, fixed } => (word & lanes(random)) | lanes(fixed),
        RandomScales::Bytes { usual } => bytes(usual) - (word & word >> 1 & bytes(1)),
        RandomScales::Records { .. } => word,
    }
}

/// The biases of four groups whose scales were made of the same word: the middle of the quants becomes 0.
pub(super) fn biases(of: &QuantRecord, word: u64) -> u64 {
    let (scales, mut biases) = (scales(of.random, word), 0);
    let middle = middle(of);
    for shift in [0, 16, 32, 48] {
        let scale = (scales >> shift) as u16;
        let bias = match stored(of) {
            // bf16 is the upper half of f32.
            ScaleType::BF16 => ((-middle * f32::from_bits(u32::from(scale) << 16)).to_bits() >> 16) as u16,
            _ => f16::from_f32(-middle * f16::from_bits(scale).to_f32()).to_bits(),
        };
        biases |= u64::from(bias) << shift;
    }
    biases
}

/// A record of scales in two levels, of three random words.
pub(super) fn record(of: &QuantRecord, words: [u64; 3]) -> [u8; MOST_RECORD] {
    let mut record = [0; MOST_RECORD];
    let RandomScales::Records {
        exponent,
        random,
        least,
        with_signs,
    } = of.random
    else {
        return record;
    };
    let integers = |word: u64| {
        let integers = (word & bytes(random)) + bytes(least);
        if with_signs { signed(integers, word) } else { integers }
    };
    let d = f16::from_bits((words[0] as u16 & 0x01ff) | exponent << 10);
    let m = match of.format.code {
        Code::Bias => f16::from_f32(middle(of) * d.to_f32()),
        _ => f16::ZERO,
    };
    record[..2].copy_from_slice(&d.to_le_bytes());
    record[2..4].copy_from_slice(&m.to_le_bytes());
    record[4..12].copy_from_slice(&integers(words[1]).to_le_bytes());
    record[12..].copy_from_slice(&integers(words[2]).to_le_bytes());
    record
}

/// The mean of all quants.
fn middle(of: &QuantRecord) -> f32 {
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

/// The bytes of `numbers`, of which those whose highest bit in `word` is set become −1 − n.
fn signed(numbers: u64, word: u64) -> u64 {
    numbers ^ ((word >> 7 & bytes(1)) * 0xff)
}
