//! GGUF's IQ4_NL: blocks of 32 values with an f16 scale d, then 16 bytes with the nibble order of Q4_0. A nibble q is
//! an index into a codebook of 16 numbers that are denser around 0; value = d·book[q].

use crate::blocks::{f16_scale, repack_nibbles, restore_nibbles, store_f16_scale};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

/// The codebook; IQ4_XS shares it.
pub(super) const BOOK: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "iq4_nl",
    label: "IQ4_NL",
    spellings: &["iq4_nl"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Book(BOOK),
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 20,
        file_type: 25,
        values: 32,
        bytes: 18,
        repack,
        restore,
        scale: f16_scale,
        store_scale: store_f16_scale,
        bias_at: None,
        encode: encoder!(encode),
        fallback: None,
    }),
    mode: None,
    random: RandomScales::Floats {
        random: 0x81ff,
        fixed: 3 << 10,
    },
};

impl QuantFormat {
    /// GGUF's IQ4_NL: 4 bits, groups of 32, a codebook of 16 numbers.
    pub const IQ4_NL: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    repack_nibbles(&block[2..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    restore_nibbles(quants, &mut block[2..]);
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::blocks::pack_nibbles;
    use crate::fit::{f16_bytes, fit_book, nearest};

    let stored = f16_bytes(fit_book(values, &BOOK))?;
    block[..2].copy_from_slice(&stored);
    let scale = half::f16::from_le_bytes(stored).to_f32();
    let mut quants = [nearest(0.0, &BOOK); 32];
    if scale != 0.0 {
        for (q, value) in quants.iter_mut().zip(values) {
            *q = nearest(value / scale, &BOOK);
        }
    }
    pack_nibbles(&quants, &mut block[2..]);
    Some(())
}
