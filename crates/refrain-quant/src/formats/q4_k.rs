//! GGUF's Q4_K: blocks of 256 values in groups of 32. f16 d and m, 12 bytes of 6-bit factors a and b for each group,
//! 128 bytes of 4-bit values; value = (d·a)·q − m·b.

use super::six_bits::{six_bits, store_six_bits};
use crate::blocks::{nibble_lines, packed, store_nibble_lines, unpacked};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, RecordIntegers, ScaleRecords, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q4_k",
    label: "Q4_K",
    spellings: &["q4_k"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Bias,
        scales: Scales::Records(ScaleRecords {
            words: 5,
            integers: RecordIntegers::Bytes,
        }),
    },
    block: Some(GgufBlock {
        kind: 12,
        file_type: 14,
        values: 256,
        bytes: 144,
        repack,
        restore,
        scale: six_bits,
        store_scale: store_six_bits,
        bias_at: None,
        encode: encoder!(encode),
        fallback: Some("q5_0"),
    }),
    mode: None,
    random: RandomScales::Records {
        exponent: 1,
        random: 15,
        min: 48,
        with_signs: false,
    },
};

impl QuantFormat {
    /// GGUF's Q4_K: 4 bits and a bias, groups of 32, two levels of scales.
    pub const Q4_K: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<256>(4, quants, |values| nibble_lines::<32>(&block[16..], values));
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store_nibble_lines::<32>(&unpacked::<256>(4, quants), &mut block[16..]);
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::nested_with_minima;

    let nested = nested_with_minima(15, values)?;
    store_six_bits(&nested.record, block);
    store_nibble_lines::<32>(&nested.quants, &mut block[16..]);
    Some(())
}
