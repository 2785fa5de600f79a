//! The quants of GGUF blocks in the order of their values, and the resident layout's packing of them.

use crate::Encoding;

/// The most values in a block.
pub(crate) const MOST_VALUES: usize = 256;

/// Write the unsigned quants of one block, a byte each, in the order of their values.
pub(crate) fn unpack(encoding: Encoding, block: &[u8], out: &mut [u8]) {
    match encoding {
        Encoding::Q4_0 => halves(&block[2..], out),
        Encoding::Q4_1 => halves(&block[4..], out),
        Encoding::Q5_0 => {
            halves(&block[6..], out);
            fifth_bits(&block[2..6], out);
        }
        Encoding::Q5_1 => {
            halves(&block[8..], out);
            fifth_bits(&block[4..8], out);
        }
        Encoding::Q2_K => lines(&block[16..80], 2, out),
        Encoding::Q3_K => {
            lines(&block[32..96], 2, out);
            upper_bits(&block[..32], 1, 2, out);
        }
        Encoding::Q4_K => nibble_lines::<32>(&block[16..], out),
        Encoding::Q5_K => {
            nibble_lines::<32>(&block[48..], out);
            upper_bits(&block[16..48], 1, 4, out);
        }
        Encoding::Q6_K => {
            nibble_lines::<64>(&block[..128], out);
            for (half, out) in out.chunks_exact_mut(128).enumerate() {
                upper_bits(&block[128 + 32 * half..][..32], 2, 4, out);
            }
        }
        _ => out.copy_from_slice(&block[2..]),
    }
}

/// The opposite of [`unpack`]: write the quants, a byte each, to their places in a block whose other bytes
/// are left as they are.
pub(crate) fn store(encoding: Encoding, quants: &[u8], block: &mut [u8]) {
    match encoding {
        Encoding::Q4_0 => store_halves(quants, &mut block[2..]),
        Encoding::Q4_1 => store_halves(quants, &mut block[4..]),
        Encoding::Q5_0 => {
            store_halves(quants, &mut block[6..]);
            store_fifth_bits(quants, &mut block[2..6]);
        }
        Encoding::Q5_1 => {
            store_halves(quants, &mut block[8..]);
            store_fifth_bits(quants, &mut block[4..8]);
        }
        Encoding::Q2_K => store_lines(quants, 2, &mut block[16..80]),
        Encoding::Q3_K => {
            store_lines(quants, 2, &mut block[32..96]);
            store_upper_bits(quants, 1, 2, &mut block[..32]);
        }
        Encoding::Q4_K => store_nibble_lines::<32>(quants, &mut block[16..]),
        Encoding::Q5_K => {
            store_nibble_lines::<32>(quants, &mut block[48..]);
            store_upper_bits(quants, 1, 4, &mut block[16..48]);
        }
        Encoding::Q6_K => {
            store_nibble_lines::<64>(quants, &mut block[..128]);
            for (half, quants) in quants.chunks_exact(128).enumerate() {
                store_upper_bits(quants, 2, 4, &mut block[128 + 32 * half..][..32]);
            }
        }
        _ => block[2..].copy_from_slice(quants),
    }
}

/// The opposite of [`pack`]: `bits` bits each, low bits first, become a byte each.
pub(crate) fn spread(bits: usize, packed: &[u8], values: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    for (packed, values) in packed.chunks_exact(bits).zip(values.chunks_exact_mut(8)) {
        let mut eight = [0; 8];
        eight[..bits].copy_from_slice(packed);
        let eight = u64::from_le_bytes(eight);
        for (k, value) in values.iter_mut().enumerate() {
            *value = (eight >> (k * bits) & mask) as u8;
        }
    }
}

/// Pack unsigned values into `bits` bits each, low bits first: eight values to `bits` bytes.
pub(crate) fn pack(bits: usize, values: &[u8], out: &mut [u8]) {
    for (values, out) in values.chunks_exact(8).zip(out.chunks_exact_mut(bits)) {
        let eight = values.iter().rev().fold(0u64, |all, &v| all << bits | u64::from(v));
        out.copy_from_slice(&eight.to_le_bytes()[..bits]);
    }
}

/// Byte j holds value j and value j + 16.
fn halves(stored: &[u8], out: &mut [u8]) {
    for (j, &byte) in stored.iter().enumerate() {
        out[j] = byte & 15;
        out[j + 16] = byte >> 4;
    }
}

/// The opposite of [`halves`].
fn store_halves(values: &[u8], out: &mut [u8]) {
    for (j, byte) in out.iter_mut().enumerate() {
        *byte = (values[j] & 15) | values[j + 16] << 4;
    }
}

/// Bit j of a little-endian word is bit 4 of value j.
fn fifth_bits(stored: &[u8], out: &mut [u8]) {
    for (j, value) in out.iter_mut().enumerate() {
        *value |= (stored[j / 8] >> (j % 8) & 1) << 4;
    }
}

/// The opposite of [`fifth_bits`].
fn store_fifth_bits(values: &[u8], out: &mut [u8]) {
    for (byte, values) in out.iter_mut().zip(values.chunks_exact(8)) {
        *byte = values.iter().rev().fold(0, |all, &value| all << 1 | (value >> 4 & 1));
    }
}

/// Each line of 32 bytes holds 32 values in its bytes' lowest `bits` bits, 32 in the next, and so on.
fn lines(stored: &[u8], bits: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (line, out) in stored.chunks_exact(32).zip(out.chunks_exact_mut(32 * (8 / bits))) {
        for (level, out) in out.chunks_exact_mut(32).enumerate() {
            for (value, byte) in out.iter_mut().zip(line) {
                *value = byte >> (bits * level) & mask;
            }
        }
    }
}

/// The opposite of [`lines`].
fn store_lines(values: &[u8], bits: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (line, values) in out.chunks_exact_mut(32).zip(values.chunks_exact(32 * (8 / bits))) {
        for (i, byte) in line.iter_mut().enumerate() {
            let levels = values.chunks_exact(32).rev();
            *byte = levels.fold(0, |all, level| all << bits | (level[i] & mask));
        }
    }
}

/// Each line of `LINE` bytes holds `LINE` values in its bytes' low halves, then as many in the high.
fn nibble_lines<const LINE: usize>(stored: &[u8], out: &mut [u8]) {
    for (line, out) in stored.chunks_exact(LINE).zip(out.chunks_exact_mut(2 * LINE)) {
        let (low, high) = out.split_at_mut(LINE);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(line) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

/// The opposite of [`nibble_lines`].
fn store_nibble_lines<const LINE: usize>(values: &[u8], out: &mut [u8]) {
    for (line, values) in out.chunks_exact_mut(LINE).zip(values.chunks_exact(2 * LINE)) {
        let (low, high) = values.split_at(LINE);
        for ((byte, low), high) in line.iter_mut().zip(low).zip(high) {
            *byte = (low & 15) | high << 4;
        }
    }
}

/// 32 bytes hold `bits` bits of each value, which belong at bit `at`: the lowest bits are those of the
/// first 32 values, the next of the next 32, and so on.
fn upper_bits(stored: &[u8], bits: usize, at: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (level, out) in out.chunks_exact_mut(32).enumerate() {
        for (value, byte) in out.iter_mut().zip(stored) {
            *value |= (byte >> (bits * level) & mask) << at;
        }
    }
}

/// The opposite of [`upper_bits`].
fn store_upper_bits(values: &[u8], bits: usize, at: usize, out: &mut [u8]) {
    let mask = (1 << bits) - 1;
    for (i, byte) in out.iter_mut().enumerate() {
        let levels = values.chunks_exact(32).rev();
        *byte = levels.fold(0, |all, level| all << bits | (level[i] >> at & mask));
    }
}
