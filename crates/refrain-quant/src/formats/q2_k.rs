//! GGUF's Q2_K: blocks of 256 values in groups of 16. A byte for each group (factor a in the low nibble, b in the high
//! one), 64 bytes of 2-bit values, f16 d and m; value = (d·a)·q − m·b.

use crate::blocks::{lines, packed, store_lines, unpacked};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, RecordIntegers, ScaleRecords, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q2_k",
    label: "Q2_K",
    spellings: &["q2_k"],
    format: QuantFormat {
        bits: 2,
        group: 16,
        code: Code::Bias,
        scales: Scales::Records(ScaleRecords {
            words: 5,
            integers: RecordIntegers::Nibbles,
        }),
    },
    block: Some(GgufBlock {
        kind: 10,
        file_type: 10,
        values: 256,
        bytes: 84,
        repack,
        restore,
        scale,
        store_scale,
        bias_at: None,
        encode: None,
        fallback: Some("q4_0"),
    }),
    mode: None,
    random: RandomScales::Records {
        exponent: 5,
        random: 0x33,
        min: 0xcc,
        with_signs: false,
    },
};

impl QuantFormat {
    /// GGUF's Q2_K: 2 bits and a bias, groups of 16, two levels of scales.
    pub const Q2_K: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<256>(2, quants, |values| lines(&block[16..80], 2, values));
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store_lines(&unpacked::<256>(2, quants), 2, &mut block[16..80]);
}

fn scale(block: &[u8], record: &mut [u8]) {
    record[..4].copy_from_slice(&block[80..84]);
    record[4..].copy_from_slice(&block[..16]);
}

fn store_scale(record: &[u8], block: &mut [u8]) {
    block[80..84].copy_from_slice(&record[..4]);
    block[..16].copy_from_slice(&record[4..]);
}
