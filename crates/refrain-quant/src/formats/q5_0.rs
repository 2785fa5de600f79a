//! GGUF's Q5_0: blocks of 32 values. An f16 scale d, 4 bytes with the fifth bits (bit j is that of value j), then the
//! lower four bits as in Q4_0; value = d·(q − 16).

use crate::blocks::{
    f16_scale, fifth_bits, pack_nibbles, packed, store_f16_scale, store_fifth_bits, unpack_nibbles, unpacked,
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
        code: Code::Centred,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 6,
        file_type: 8,
        values: 32,
        bytes: 22,
        repack,
        restore,
        scale: f16_scale,
        store_scale: store_f16_scale,
        bias_at: None,
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
    /// GGUF's Q5_0: 5 bits, groups of 32, centred on 16.
    pub const Q5_0: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<32>(5, quants, |values| {
        unpack_nibbles(&block[6..], values);
        fifth_bits(&block[2..6], values);
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(5, quants), block);
}

fn store(values: &[u8; 32], block: &mut [u8]) {
    pack_nibbles(values, &mut block[6..]);
    store_fifth_bits(values, &mut block[2..6]);
}

/// The output equals that of the `gguf` Python package byte for byte.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{centred, f16_bytes};

    let (scale, quants) = centred(values, 16);
    block[..2].copy_from_slice(&f16_bytes(scale)?);
    store(&quants, block);
    Some(())
}
