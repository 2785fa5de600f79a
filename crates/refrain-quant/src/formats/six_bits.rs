//! The 6-bit integers of Q4_K and Q5_K: eight for scales and eight for minima, in 12 bytes.

/// Unpacks d, m and the integers to a scale record. The low six bits of bytes 0 to 3 and 4 to 7 are the first four
/// scales and minima. The others have their lower four bits in bytes 8 to 11 and their upper two in the top of bytes 0
/// to 7.
pub(super) fn six_bits(block: &[u8], record: &mut [u8]) {
    let (factors, out) = record.split_at_mut(4);
    factors.copy_from_slice(&block[..4]);
    let stored = &block[4..16];
    for j in 0..4 {
        let (factor, minimum, rest) = (stored[j], stored[4 + j], stored[8 + j]);
        out[j] = factor & 63;
        out[4 + j] = (rest & 15) | (factor >> 2 & 0x30);
        out[8 + j] = minimum & 63;
        out[12 + j] = (rest >> 4) | (minimum >> 2 & 0x30);
    }
}

/// Inverse of [`six_bits`].
pub(super) fn store_six_bits(record: &[u8], block: &mut [u8]) {
    let (factors, integers) = record.split_at(4);
    block[..4].copy_from_slice(factors);
    let out = &mut block[4..16];
    for j in 0..4 {
        let (factor, minimum) = (integers[4 + j], integers[12 + j]);
        out[j] = (integers[j] & 63) | (factor >> 4) << 6;
        out[4 + j] = (integers[8 + j] & 63) | (minimum >> 4) << 6;
        out[8 + j] = (factor & 15) | minimum << 4;
    }
}
