//! GGUF's Q4_1: Q4_0 with an f16 minimum m after the scale; value = d·q + m.

use crate::blocks::{f16_scale, repack_nibbles, restore_nibbles, store_f16_scale};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q4_1",
    label: "Q4_1",
    spellings: &["q4_1"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Bias,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 3,
        file_type: 3,
        values: 32,
        bytes: 20,
        repack,
        restore,
        scale: f16_scale,
        store_scale: store_f16_scale,
        bias_at: Some(2),
        encode: None,
        fallback: None,
    }),
    mode: None,
    random: RandomScales::Floats {
        random: 0x81ff,
        fixed: 7 << 10,
    },
};

impl QuantFormat {
    /// GGUF's Q4_1: 4 bits and a bias, groups of 32.
    pub const Q4_1: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    repack_nibbles(&block[4..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    restore_nibbles(quants, &mut block[4..]);
}
