//! Random bits made scales: of each format such that its weights have a standard deviation near 0.02 and the
//! mean 0. A scale's bits are random but for its exponent, which keeps it between a power of two and one and
//! a half times as much; where quants are not as often negative as positive, scales are.

use half::f16;

use crate::Encoding;
use crate::blocks::records::RECORD_BYTES;

/// How scales (and biases) of an encoding are stored.
pub(super) fn encoding(of: Encoding) -> Option<Encoding> {
    match of {
        Encoding::MlxAffine { .. } => Some(Encoding::BF16),
        _ if of.has_records() => Some(Encoding::U32),
        _ => of.quant_bits().map(|_| Encoding::F16),
    }
}

/// Four scales of 2 bytes.
pub(super) fn scales(of: Encoding, word: u64) -> u64 {
    match of {
        // f16, from 2^-12.
        Encoding::Q8_0 => (word & lanes(0x01ff)) | lanes(3 << 10),
        // bf16, from ±2^-(bits + 4).
        Encoding::MlxAffine { bits, .. } => (word & lanes(0x803f)) | lanes((123 - u16::from(bits)) << 7),
        // f16, from ±2^-(bits + 4).
        _ => (word & lanes(0x81ff)) | lanes((11 - bits(of)) << 10),
    }
}

/// The biases of four groups whose scales were made of the same word: the middle of the quants becomes 0.
pub(super) fn biases(of: Encoding, word: u64) -> u64 {
    let (scales, mut biases) = (scales(of, word), 0);
    let middle = middle(of);
    for shift in [0, 16, 32, 48] {
        let scale = (scales >> shift) as u16;
        let bias = match of {
            // bf16 is the upper half of f32.
            Encoding::MlxAffine { .. } => ((-middle * f32::from_bits(u32::from(scale) << 16)).to_bits() >> 16) as u16,
            _ => f16::from_f32(-middle * f16::from_bits(scale).to_f32()).to_bits(),
        };
        biases |= u64::from(bias) << shift;
    }
    biases
}

/// A record of scales in two levels, of three random words.
pub(super) fn record(of: Encoding, words: [u64; 3]) -> [u8; RECORD_BYTES] {
    // The exponent of the factors, and of which integers the groups' factors are.
    let (exponent, integers): (u16, fn(u64) -> u64) = match of {
        // 12 to 15 in each half.
        Encoding::Q2_K => (5, |word| (word & bytes(0x33)) + bytes(0xcc)),
        // 24 to 31, and as often −25 to −32.
        Encoding::Q3_K => (3, |word| with_signs((word & bytes(7)) + bytes(24), word)),
        // 48 to 63.
        Encoding::Q4_K => (1, |word| (word & bytes(15)) + bytes(48)),
        // 24 to 31.
        Encoding::Q5_K => (1, |word| (word & bytes(7)) + bytes(24)),
        // 10 to 17, and as often −11 to −18.
        _ => (1, |word| with_signs((word & bytes(7)) + bytes(10), word)),
    };
    let d = f16::from_bits((words[0] as u16 & 0x01ff) | exponent << 10);
    let m = match of {
        Encoding::Q3_K | Encoding::Q6_K => f16::ZERO,
        _ => f16::from_f32(middle(of) * d.to_f32()),
    };
    let mut record = [0; RECORD_BYTES];
    record[..2].copy_from_slice(&d.to_le_bytes());
    record[2..4].copy_from_slice(&m.to_le_bytes());
    record[4..12].copy_from_slice(&integers(words[1]).to_le_bytes());
    record[12..].copy_from_slice(&integers(words[2]).to_le_bytes());
    record
}

fn bits(of: Encoding) -> u16 {
    of.quant_bits().unwrap_or(8) as u16
}

/// The mean of all quants.
fn middle(of: Encoding) -> f32 {
    f32::from((1u16 << bits(of)) - 1) / 2.0
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
fn with_signs(numbers: u64, word: u64) -> u64 {
    numbers ^ ((word >> 7 & bytes(1)) * 0xff)
}
