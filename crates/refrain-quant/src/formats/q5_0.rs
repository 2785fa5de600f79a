//! GGUF's Q5_0: blocks of 32 values, an f16 scale d, the values' fifth bits (value j's in bit j of 4 bytes), then their
//! lower four as in Q4_0; value = d·(q − 16).

use crate::blocks::{
    fifth_bits, half_scale, halves, packed, store_fifth_bits, store_half_scale, store_halves, unpacked,
};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q5_0",
    label: "Q5_0",
    spellings: &["q5_0"],
    format: QuantFormat {
        bits: 5,
        group: 32,
        code: Code::Middle,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 6,
        file_type: 8,
        values: 32,
        bytes: 22,
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
        fixed: 6 << 10,
    },
};

impl QuantFormat {
    /// GGUF's Q5_0: 5 bits, groups of 32, around 16.
    pub const Q5_0: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<32>(5, quants, |values| {
        halves(&block[6..], values);
        fifth_bits(&block[2..6], values);
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(5, quants), block);
}

fn store(values: &[u8; 32], block: &mut [u8]) {
    store_halves(values, &mut block[6..]);
    store_fifth_bits(values, &mut block[2..6]);
}

/// Byte-equal to the `gguf` Python package's.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{centred, half_float};

    let (scale, quants) = centred(values, 16);
    block[..2].copy_from_slice(&half_float(scale)?);
    store(&quants, block);
    Some(())
}
