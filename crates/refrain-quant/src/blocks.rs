//! Bit layouts that several GGUF formats share, and the f16 scale at the start of their blocks.

use crate::bits::{pack_bits, unpack_bits};

/// Copies the f16 scale at the start of a block.
pub fn f16_scale(block: &[u8], out: &mut [u8]) {
    out.copy_from_slice(&block[..2]);
}

/// Inverse of [`f16_scale`].
pub fn store_f16_scale(scale: &[u8], block: &mut [u8]) {
    block[..2].copy_from_slice(scale);
}

/// Packs the values of a block; `unpack` yields them as one byte each.
#[inline(always)]
pub(crate) fn packed<const VALUES: usize>(bits: usize, out: &mut [u8], unpack: impl FnOnce(&mut [u8; VALUES])) {
    let mut values = [0; VALUES];
    unpack(&mut values);
    pack_bits(bits, &values, out);
}

/// Inverse of [`packed`].
#[inline(always)]
pub(crate) fn unpacked<const VALUES: usize>(bits: usize, quants: &[u8]) -> [u8; VALUES] {
    let mut values = [0; VALUES];
    unpack_bits(bits, quants, &mut values);
    values
}

/// Reorders 32 nibbles: byte j of a GGUF block holds values j and j + 16, the plane holds neighbours in one byte.
pub(crate) fn repack_nibbles(stored: &[u8], out: &mut [u8]) {
    let (Ok(stored), Ok(out)) = (<&[u8; 16]>::try_from(stored), <&mut [u8; 16]>::try_from(out)) else {
        return;
    };
    for j in 0..8 {
        let (a, b) = (stored[2 * j], stored[2 * j + 1]);
        out[j] = (a & 0x0f) | (b << 4);
        out[8 + j] = (a >> 4) | (b & 0xf0);
    }
}

/// Inverse of [`repack_nibbles`].
pub(crate) fn restore_nibbles(quants: &[u8], block: &mut [u8]) {
    pack_nibbles(&unpacked::<32>(4, quants), block);
}

/// Unpacks nibbles: byte j holds value j (low nibble) and value j + 16 (high nibble).
#[inline]
pub fn unpack_nibbles(stored: &[u8], out: &mut [u8]) {
    for (j, &byte) in stored.iter().enumerate() {
        out[j] = byte & 15;
        out[j + 16] = byte >> 4;
    }
}

/// Inverse of [`unpack_nibbles`].
#[inline]
pub fn pack_nibbles(values: &[u8], out: &mut [u8]) {
    for (j, byte) in out.iter_mut().enumerate() {
        *byte = (values[j] & 15) | values[j + 16] << 4;
    }
}

/// Adds the fifth bits: bit j of a little-endian word is bit 4 of value j.
#[inline]
pub(crate) fn fifth_bits(stored: &[u8], out: &mut [u8]) {
    for (j, value) in out.iter_mut().enumerate() {
        *value |= (stored[j / 8] >> (j % 8) & 1) << 4;
    }
}

/// Inverse of [`fifth_bits`].
#[inline]
pub(crate) fn store_fifth_bits(values: &[u8], out: &mut [u8]) {
    for (byte, values) in out.iter_mut().zip(values.chunks_exact(8)) {
        *byte = values.iter().rev().fold(0, |all, &value| all << 1 | (value >> 4 & 1));
    }
}

/// Unpacks lines of 32 bytes: the lowest `bits` bits of the bytes hold the first 32 values, the next bits the next 32,
/// and so on.
#[inline]
pub(crate) fn lines(stored: &[u8], bits: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (line, out) in stored.chunks_exact(32).zip(out.chunks_exact_mut(32 * (8 / bits))) {
        for (level, out) in out.chunks_exact_mut(32).enumerate() {
            for (value, byte) in out.iter_mut().zip(line) {
                *value = byte >> (bits * level) & mask;
            }
        }
    }
}

/// Inverse of [`lines`].
#[inline]
pub(crate) fn store_lines(values: &[u8], bits: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (line, values) in out.chunks_exact_mut(32).zip(values.chunks_exact(32 * (8 / bits))) {
        for (i, byte) in line.iter_mut().enumerate() {
            let levels = values.chunks_exact(32).rev();
            *byte = levels.fold(0, |all, level| all << bits | (level[i] & mask));
        }
    }
}

/// Unpacks lines of `LINE` bytes: the low nibbles hold `LINE` values, the high nibbles the next `LINE`.
#[inline]
pub(crate) fn nibble_lines<const LINE: usize>(stored: &[u8], out: &mut [u8]) {
    for (line, out) in stored.chunks_exact(LINE).zip(out.chunks_exact_mut(2 * LINE)) {
        let (low, high) = out.split_at_mut(LINE);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(line) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

/// Inverse of [`nibble_lines`].
#[inline]
pub(crate) fn store_nibble_lines<const LINE: usize>(values: &[u8], out: &mut [u8]) {
    for (line, values) in out.chunks_exact_mut(LINE).zip(values.chunks_exact(2 * LINE)) {
        let (low, high) = values.split_at(LINE);
        for ((byte, low), high) in line.iter_mut().zip(low).zip(high) {
            *byte = (low & 15) | high << 4;
        }
    }
}

/// Adds the upper bits: 32 bytes hold `bits` bits of each value, which go to bit `at`. The lowest bits of the bytes are
/// those of the first 32 values, the next bits those of the next 32, and so on.
#[inline]
pub(crate) fn upper_bits(stored: &[u8], bits: usize, at: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (level, out) in out.chunks_exact_mut(32).enumerate() {
        for (value, byte) in out.iter_mut().zip(stored) {
            *value |= (byte >> (bits * level) & mask) << at;
        }
    }
}

/// Inverse of [`upper_bits`].
#[inline]
pub(crate) fn store_upper_bits(values: &[u8], bits: usize, at: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (i, byte) in out.iter_mut().enumerate() {
        let levels = values.chunks_exact(32).rev();
        *byte = levels.fold(0, |all, level| all << bits | (level[i] >> at & mask));
    }
}
