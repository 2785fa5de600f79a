//! GGUF's Q4_1: as Q4_0 with an f16 minimum m after the scale; value = d·q + m.

use crate::blocks::{half_scale, pack_halves, store_half_scale, store_packed_halves};
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
        scale: half_scale,
        store_scale: store_half_scale,
        bias_at: Some(2),
        encode: None,
        stand_in: None,
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
    pack_halves(&block[4..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store_packed_halves(quants, &mut block[4..]);
}
