use super::blocks::BlockRows;
use super::octet::Octet;
use super::scales;
use crate::quantised::QuantRows;

/// Quantised rows whose blocks take `BYTES` bytes, with a scale for each half of a block where `HALVES`, and
/// else for one or several blocks; values of 8 bits are two's complement where `SIGNED`.
///
/// All are read as unsigned numbers with a scale and a bias: one of values around a middle is the scale times
/// a power of two, so that nothing but the result is rounded.
pub(super) struct Packed<'a, const BYTES: usize, const HALVES: bool, const SIGNED: bool> {
    pub rows: &'a QuantRows<'a>,
}

/// A row of [`Packed`].
#[derive(Clone, Copy)]
pub(super) struct PackedRow<'a, const BYTES: usize> {
    quants: &'a [[u8; BYTES]],
    /// The scale of each block, or of each half of one.
    scales: &'a [f32],
    /// As many biases.
    biases: &'a [f32],
}

/// A block of [`Packed`]: four values to a word, and each word's scale and bias.
#[derive(Clone, Copy)]
pub(super) struct PackedBlock {
    words: [u32; Octet::COUNT],
    scales: Octet,
    biases: Octet,
}

impl<const BYTES: usize, const HALVES: bool, const SIGNED: bool> BlockRows for Packed<'_, BYTES, HALVES, SIGNED> {
    type Row<'a>
        = PackedRow<'a, BYTES>
    where
        Self: 'a;
    type Stored = PackedBlock;
    const INTERLEAVED: bool = true;

    #[inline(always)]
    fn row<'a>(&'a self, number: usize, length: usize, memory: &'a mut Vec<f32>) -> PackedRow<'a, BYTES> {
        let (quants, _) = self.rows.quants(number).as_chunks();
        let count = if HALVES { 2 * length } else { length };
        memory.resize(2 * count, 0.0);
        let (scales, biases) = memory.split_at_mut(count);
        scales::read(self.rows, number, scales, biases);
        PackedRow {
            quants: &quants[..length],
            scales,
            biases,
        }
    }

    #[inline(always)]
    fn stored(row: PackedRow<'_, BYTES>, number: usize) -> PackedBlock {
        PackedBlock {
            words: words::<BYTES, SIGNED>(&row.quants[number]),
            scales: spread::<HALVES>(row.scales, number),
            biases: spread::<HALVES>(row.biases, number),
        }
    }

    #[inline(always)]
    fn part<const FUSED: bool>(stored: PackedBlock, j: usize) -> Octet {
        let bits = BYTES as u32 / 4;
        let quants = Octet::new(|l| (stored.words[l] >> (bits * j as u32) & ((1 << bits) - 1)) as i32 as f32);
        quants.times_plus::<FUSED>(stored.scales, stored.biases)
    }
}

/// The parameter of each word of a block.
#[inline(always)]
fn spread<const HALVES: bool>(parameters: &[f32], block: usize) -> Octet {
    match HALVES {
        true => {
            let [low, high] = [parameters[2 * block], parameters[2 * block + 1]];
            Octet::new(|l| if l < Octet::COUNT / 2 { low } else { high })
        }
        false => Octet([parameters[block]; Octet::COUNT]),
    }
}

/// Eight times four neighbouring values, those of each word from its lowest bits on; what is above them is
/// not theirs.
#[inline(always)]
fn words<const BYTES: usize, const SIGNED: bool>(block: &[u8; BYTES]) -> [u32; Octet::COUNT] {
    match BYTES {
        8 => each(|l| u32::from(block[l])),
        16 => each(|l| u32::from(u16::from_le_bytes([block[2 * l], block[2 * l + 1]]))),
        24 => each(|l| three(block, 3 * l)),
        32 => {
            let flipped = if SIGNED { 0x8080_8080 } else { 0 };
            each(|l| flipped ^ u32::from_le_bytes([block[4 * l], block[4 * l + 1], block[4 * l + 2], block[4 * l + 3]]))
        }
        // Four values are an odd number of nibbles: every other word begins amid a byte.
        12 => each(|l| three(block, l / 2 * 3) >> (l % 2 * 12)),
        _ => each(|l| three(block, l / 2 * 5 + l % 2 * 2) >> (l % 2 * 4)),
    }
}

#[inline(always)]
fn each(word: impl Fn(usize) -> u32) -> [u32; Octet::COUNT] {
    let mut words = [0; Octet::COUNT];
    for (l, out) in words.iter_mut().enumerate() {
        *out = word(l);
    }
    words
}

/// A word of three bytes from `first` on.
#[inline(always)]
fn three(block: &[u8], first: usize) -> u32 {
    u32::from_le_bytes([block[first], block[first + 1], block[first + 2], 0])
}
