//! Bit packing: eight values of `bits` bits take `bits` bytes, low bits first.

/// Packs unsigned values that are given as one byte each.
#[inline]
pub fn pack_bits(bits: usize, values: &[u8], out: &mut [u8]) {
    for (values, out) in values.chunks_exact(8).zip(out.chunks_exact_mut(bits)) {
        let eight = values.iter().rev().fold(0u64, |all, &v| all << bits | u64::from(v));
        out.copy_from_slice(&eight.to_le_bytes()[..bits]);
    }
}

/// Unpacks values to one byte each: the inverse of [`pack_bits`].
#[inline]
pub fn unpack_bits(bits: usize, packed: &[u8], values: &mut [u8]) {
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
