//! GGUF's Q5_1: as Q5_0 with an f16 minimum m after the scale; value = d·q + m.

use crate::blocks::{
    fifth_bits, half_scale, halves, packed, store_fifth_bits, store_half_scale, store_halves, unpacked,
};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q5_1",
    label: "Q5_1",
    spellings: &["q5_1"],
    format: QuantFormat {
        bits: 5,
        group: 32,
        code: Code::Bias,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 7,
        file_type: 9,
        values: 32,
        bytes: 24,
        repack,
        restore,
        scale: half_scale,
        store_scale: store_half_scale,
        bias_at: Some(2),
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
    /// GGUF's Q5_1: 5 bits and a bias, groups of 32.
    pub const Q5_1: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<32>(5, quants, |values| {
        halves(&block[8..], values);
        fifth_bits(&block[4..8], values);
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(5, quants), block);
}

fn store(values: &[u8; 32], block: &mut [u8]) {
    store_halves(values, &mut block[8..]);
    store_fifth_bits(values, &mut block[4..8]);
}

/// Byte-equal to the `gguf` Python package's.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{half_float, reciprocal};

    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (most - least) / 31.0;
    let inverse = reciprocal(scale);
    let mut quants = [0; 32];
    for (q, value) in quants.iter_mut().zip(values) {
        *q = (((value - least) * inverse + 0.5) as u8).min(31);
    }
    block[..2].copy_from_slice(&half_float(scale)?);
    block[2..4].copy_from_slice(&half_float(least)?);
    store(&quants, block);
    Some(())
}
