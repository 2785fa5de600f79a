//! GGUF's IQ4_XS: blocks of 256 values in groups of 32. An f16 d, 2 bytes with the upper two bits of a factor a for
//! each group, 4 bytes with the lower four, then 16 bytes for each group as in IQ4_NL; value = (d·(a − 32))·book[q].

use super::iq4_nl::BOOK;
use crate::blocks::{repack_nibbles, restore_nibbles};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, RecordIntegers, ScaleRecords, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "iq4_xs",
    label: "IQ4_XS",
    spellings: &["iq4_xs"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Book(BOOK),
        scales: Scales::Records(ScaleRecords {
            words: 3,
            integers: RecordIntegers::Signed,
        }),
    },
    block: Some(GgufBlock {
        kind: 23,
        file_type: 30,
        values: 256,
        bytes: 136,
        repack,
        restore,
        scale,
        store_scale,
        bias_at: None,
        encode: encoder!(encode),
        fallback: Some("iq4_nl"),
    }),
    mode: None,
    random: RandomScales::Records {
        // Subnormal, as in most files.
        exponent: 0,
        random: 7,
        min: 13,
        with_signs: true,
    },
};

impl QuantFormat {
    /// GGUF's IQ4_XS: as [`QuantFormat::IQ4_NL`] with two levels of scales.
    pub const IQ4_XS: QuantFormat = RECORD.format;
}

/// Byte offset of the quants.
const QUANTS: usize = 8;

fn repack(block: &[u8], quants: &mut [u8]) {
    for (stored, quants) in block[QUANTS..].chunks_exact(16).zip(quants.chunks_exact_mut(16)) {
        repack_nibbles(stored, quants);
    }
}

fn restore(quants: &[u8], block: &mut [u8]) {
    for (stored, quants) in block[QUANTS..].chunks_exact_mut(16).zip(quants.chunks_exact(16)) {
        restore_nibbles(quants, stored);
    }
}

fn scale(block: &[u8], record: &mut [u8]) {
    record[..4].copy_from_slice(&[block[0], block[1], 0, 0]);
    for (g, factor) in record[4..].iter_mut().enumerate() {
        let low = block[4 + g / 2] >> (4 * (g % 2)) & 15;
        let high = block[2 + g / 4] >> (2 * (g % 4)) & 3;
        *factor = (low | high << 4).wrapping_sub(32);
    }
}

fn store_scale(record: &[u8], block: &mut [u8]) {
    block[..2].copy_from_slice(&record[..2]);
    block[2..QUANTS].fill(0);
    for (g, factor) in record[4..].iter().enumerate() {
        let factor = factor.wrapping_add(32) & 63;
        block[4 + g / 2] |= (factor & 15) << (4 * (g % 2));
        block[2 + g / 4] |= (factor >> 4) << (2 * (g % 4));
    }
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::blocks::pack_nibbles;
    use crate::fit::{f16_bytes, fit_book, largest_magnitude, nearest};

    let mut scales = [0.0f32; 8];
    for (scale, group) in scales.iter_mut().zip(values.chunks_exact(32)) {
        *scale = fit_book(group, &BOOK);
    }
    let stored = f16_bytes(largest_magnitude(&scales) / -32.0)?;
    let d = half::f16::from_le_bytes(stored).to_f32();
    let mut record = [0; 12];
    record[..2].copy_from_slice(&stored);
    for (g, group) in values.chunks_exact(32).enumerate() {
        let mut quants = [nearest(0.0, &BOOK); 32];
        if d != 0.0 {
            let factor = (scales[g] / d).round().clamp(-32.0, 31.0);
            record[4 + g] = factor as i8 as u8;
            let step = d * factor;
            if step != 0.0 {
                for (q, value) in quants.iter_mut().zip(group) {
                    *q = nearest(value / step, &BOOK);
                }
            }
        }
        pack_nibbles(&quants, &mut block[QUANTS + 16 * g..][..16]);
    }
    store_scale(&record, block);
    Some(())
}
