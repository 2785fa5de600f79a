//! Scales in two levels: the record of a GGUF K-quant block in the resident layout.
//!
//! Five little-endian u32 words: f16 d, f16 m (0 where the format has none), then 16 bytes of integers.
//! Q3_K and Q6_K: byte g is group g's factor, signed. Q4_K and Q5_K: 8 factors, then 8 minima.
//! Q2_K: byte g is group g's factor (low half) and minimum (high half).

use half::f16;

use crate::Encoding;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 20;

/// The record of one block.
pub(crate) fn record(encoding: Encoding, block: &[u8]) -> [u8; RECORD_BYTES] {
    let mut out = [0; RECORD_BYTES];
    let (factors, integers) = out.split_at_mut(4);
    match encoding {
        Encoding::Q2_K => {
            factors.copy_from_slice(&block[80..84]);
            integers.copy_from_slice(&block[..16]);
        }
        Encoding::Q3_K => {
            factors[..2].copy_from_slice(&block[108..110]);
            six_bits_signed(&block[96..108], integers);
        }
        Encoding::Q6_K => {
            factors[..2].copy_from_slice(&block[208..210]);
            integers.copy_from_slice(&block[192..208]);
        }
        _ => {
            factors.copy_from_slice(&block[..4]);
            six_bits(&block[4..16], integers);
        }
    }
    out
}

/// The opposite of [`record`]: write a record's contents to their places in a block whose other bytes are
/// left as they are.
pub(crate) fn store(encoding: Encoding, record: &[u8], block: &mut [u8]) {
    let (factors, integers) = record.split_at(4);
    match encoding {
        Encoding::Q2_K => {
            block[80..84].copy_from_slice(factors);
            block[..16].copy_from_slice(integers);
        }
        Encoding::Q3_K => {
            block[108..110].copy_from_slice(&factors[..2]);
            store_six_bits_signed(integers, &mut block[96..108]);
        }
        Encoding::Q6_K => {
            block[208..210].copy_from_slice(&factors[..2]);
            block[192..208].copy_from_slice(integers);
        }
        _ => {
            block[..4].copy_from_slice(factors);
            store_six_bits(integers, &mut block[4..16]);
        }
    }
}

/// Scale and bias of group `group` of a block, from its record: the value is
/// scale·(q − zero) + bias. Products are rounded to f32 as the `gguf` package rounds them.
pub(crate) fn parameters(encoding: Encoding, record: &[u8], group: usize) -> (f32, f32) {
    let factor = |at: usize| f16::from_le_bytes([record[at], record[at + 1]]).to_f32();
    let (d, m, integers) = (factor(0), factor(2), &record[4..]);
    let own = integers[group];
    match encoding {
        Encoding::Q2_K => (d * f32::from(own & 15), -(m * f32::from(own >> 4))),
        Encoding::Q3_K | Encoding::Q6_K => (d * f32::from(own as i8), 0.0),
        _ => (d * f32::from(own), -(m * f32::from(integers[8 + group]))),
    }
}

/// Q4_K's and Q5_K's factors and minima: the lower six bits of bytes 0 to 3 and 4 to 7 are the first
/// four of each; the others' lower four bits lie in bytes 8 to 11, their upper two atop bytes 0 to 7.
fn six_bits(stored: &[u8], out: &mut [u8]) {
    for j in 0..4 {
        let (factor, minimum, rest) = (stored[j], stored[4 + j], stored[8 + j]);
        out[j] = factor & 63;
        out[4 + j] = (rest & 15) | (factor >> 2 & 0x30);
        out[8 + j] = minimum & 63;
        out[12 + j] = (rest >> 4) | (minimum >> 2 & 0x30);
    }
}

/// The opposite of [`six_bits`].
fn store_six_bits(integers: &[u8], out: &mut [u8]) {
    for j in 0..4 {
        let (factor, minimum) = (integers[4 + j], integers[12 + j]);
        out[j] = (integers[j] & 63) | (factor >> 4) << 6;
        out[4 + j] = (integers[8 + j] & 63) | (minimum >> 4) << 6;
        out[8 + j] = (factor & 15) | minimum << 4;
    }
}

/// Q3_K's factors: the lower four bits in the halves of bytes 0 to 7, the upper two in the quarters of
/// bytes 8 to 11, all less 32.
fn six_bits_signed(stored: &[u8], out: &mut [u8]) {
    for (g, out) in out.iter_mut().enumerate() {
        let low = stored[g % 8] >> (4 * (g / 8)) & 15;
        let high = stored[8 + g % 4] >> (2 * (g / 4)) & 3;
        *out = (low | high << 4).wrapping_sub(32);
    }
}

/// The opposite of [`six_bits_signed`].
fn store_six_bits_signed(integers: &[u8], out: &mut [u8]) {
    out.fill(0);
    for (g, integer) in integers.iter().enumerate() {
        let factor = integer.wrapping_add(32) & 63;
        out[g % 8] |= (factor & 15) << (4 * (g / 8));
        out[8 + g % 4] |= (factor >> 4) << (2 * (g / 4));
    }
}
