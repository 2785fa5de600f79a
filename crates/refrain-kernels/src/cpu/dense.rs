use super::blocks::BlockRows;
use super::octet::{BLOCK, Octet, half_to_f32};

/// Rows of floats of `SIZE` bytes, bf16 where they are `BRAIN`.
pub(super) struct Dense<'a, const SIZE: usize, const BRAIN: bool> {
    pub bytes: &'a [u8],
    pub columns: usize,
}

/// Floats of 4 bytes.
pub(super) type Singles<'a> = Dense<'a, 4, false>;
/// Floats of 2 bytes.
pub(super) type Halves<'a> = Dense<'a, 2, false>;
/// Floats of 2 bytes with the exponents of those of 4.
pub(super) type Brains<'a> = Dense<'a, 2, true>;

impl<const SIZE: usize, const BRAIN: bool> BlockRows for Dense<'_, SIZE, BRAIN> {
    type Row<'a>
        = &'a [u8]
    where
        Self: 'a;
    type Stored = [[u8; SIZE]; BLOCK];
    const INTERLEAVED: bool = false;

    #[inline(always)]
    fn row<'a>(&'a self, number: usize, _: usize, _: &'a mut Vec<f32>) -> &'a [u8] {
        &self.bytes[number * self.columns * SIZE..][..self.columns * SIZE]
    }

    #[inline(always)]
    fn stored(row: &[u8], number: usize) -> [[u8; SIZE]; BLOCK] {
        let (floats, _) = row.as_chunks::<SIZE>();
        let floats = &floats[number * BLOCK..];
        if let Some(block) = floats.first_chunk() {
            return *block;
        }
        let mut padded = [[0; SIZE]; BLOCK];
        padded[..floats.len()].copy_from_slice(floats);
        padded
    }

    #[inline(always)]
    fn part<const FUSED: bool>(stored: [[u8; SIZE]; BLOCK], j: usize) -> Octet {
        Octet::new(|l| {
            let bytes = &stored[j * Octet::COUNT + l];
            match (SIZE, BRAIN) {
                (4, _) => f32::from_le_bytes([bytes[0], bytes[1], bytes[SIZE / 2], bytes[SIZE - 1]]),
                (_, true) => f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16),
                _ => half_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
            }
        })
    }
}
