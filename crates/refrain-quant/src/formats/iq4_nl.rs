//! GGUF's IQ4_NL: blocks of 32 values as Q4_0 has them, but of indices into a book of 16 numbers that lie closer about
//! 0: an f16 scale d, then 16 bytes; value = d·book[q].

use crate::blocks::{half_scale, pack_halves, store_half_scale, store_packed_halves};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

/// The numbers that indices stand for; IQ4_XS has the same.
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
        scale: half_scale,
        store_scale: store_half_scale,
        bias_at: None,
        encode: encoder!(encode),
        stand_in: None,
    }),
    mode: None,
    random: RandomScales::Floats {
        random: 0x81ff,
        fixed: 3 << 10,
    },
};

impl QuantFormat {
    /// GGUF's IQ4_NL: 4 bits, groups of 32, a book of 16 numbers.
    pub const IQ4_NL: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    pack_halves(&block[2..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store_packed_halves(quants, &mut block[2..]);
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::blocks::store_halves;
    use crate::fit::{fit_book, half_float, nearest};

    let stored = half_float(fit_book(values, &BOOK))?;
    block[..2].copy_from_slice(&stored);
    let scale = half::f16::from_le_bytes(stored).to_f32();
    let mut quants = [nearest(0.0, &BOOK); 32];
    if scale != 0.0 {
        for (q, value) in quants.iter_mut().zip(values) {
            *q = nearest(value / scale, &BOOK);
        }
    }
    store_halves(&quants, &mut block[2..]);
    Some(())
}
