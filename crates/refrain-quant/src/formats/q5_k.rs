//! GGUF's Q5_K: blocks of 256 values in groups of 32. f16 d and m, 12 bytes of 6-bit factors a and b for each group, 32
//! bytes of fifth bits, 128 bytes of the lower four bits; value = (d·a)·q − m·b.

use super::six_bits::{six_bits, store_six_bits};
use crate::blocks::{nibble_lines, packed, store_nibble_lines, store_upper_bits, unpacked, upper_bits};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, RecordIntegers, ScaleRecords, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q5_k",
    label: "Q5_K",
    spellings: &["q5_k"],
    format: QuantFormat {
        bits: 5,
        group: 32,
        code: Code::Bias,
        scales: Scales::Records(ScaleRecords {
            words: 5,
            integers: RecordIntegers::Bytes,
        }),
    },
    block: Some(GgufBlock {
        kind: 13,
        file_type: 16,
        values: 256,
        bytes: 176,
        repack,
        restore,
        scale: six_bits,
        store_scale: store_six_bits,
        bias_at: None,
        encode: encoder!(encode),
        fallback: Some("q5_1"),
    }),
    mode: None,
    random: RandomScales::Records {
        exponent: 1,
        random: 7,
        min: 24,
        with_signs: false,
    },
};

impl QuantFormat {
    /// GGUF's Q5_K: 5 bits and a bias, groups of 32, two levels of scales.
    pub const Q5_K: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<256>(5, quants, |values| {
        nibble_lines::<32>(&block[48..], values);
        upper_bits(&block[16..48], 1, 4, values);
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(5, quants), block);
}

fn store(values: &[u8; 256], block: &mut [u8]) {
    store_nibble_lines::<32>(values, &mut block[48..]);
    store_upper_bits(values, 1, 4, &mut block[16..48]);
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::nested_with_minima;

    let nested = nested_with_minima(31, values)?;
    store_six_bits(&nested.record, block);
    store(&nested.quants, block);
    Some(())
}
