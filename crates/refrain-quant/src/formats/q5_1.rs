//! GGUF's Q5_1: Q5_0 with an f16 minimum m after the scale; value = d·q + m.

use crate::blocks::{
    f16_scale, fifth_bits, pack_nibbles, packed, store_f16_scale, store_fifth_bits, unpack_nibbles, unpacked,
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
        scale: f16_scale,
        store_scale: store_f16_scale,
        bias_at: Some(2),
        encode: encoder!(encode),
        fallback: None,
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
        unpack_nibbles(&block[8..], values);
        fifth_bits(&block[4..8], values);
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(5, quants), block);
}

fn store(values: &[u8; 32], block: &mut [u8]) {
    pack_nibbles(values, &mut block[8..]);
    store_fifth_bits(values, &mut block[4..8]);
}

/// The output equals that of the `gguf` Python package byte for byte.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{f16_bytes, reciprocal};

    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (max - min) / 31.0;
    let inverse = reciprocal(scale);
    let mut quants = [0; 32];
    for (q, value) in quants.iter_mut().zip(values) {
        *q = (((value - min) * inverse + 0.5) as u8).min(31);
    }
    block[..2].copy_from_slice(&f16_bytes(scale)?);
    block[2..4].copy_from_slice(&f16_bytes(min)?);
    store(&quants, block);
    Some(())
}
