//! GGUF's Q4_0: blocks of 32 values with an f16 scale d, then 16 bytes. Byte j holds value j in its low nibble and
//! value j + 16 in its high one; value = d·(q − 8).

use crate::blocks::{f16_scale, repack_nibbles, restore_nibbles, store_f16_scale};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q4_0",
    label: "Q4_0",
    spellings: &["q4_0"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Centred,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 2,
        file_type: 2,
        values: 32,
        bytes: 18,
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
        fixed: 7 << 10,
    },
};

impl QuantFormat {
    /// GGUF's Q4_0: 4 bits, groups of 32, centred on 8.
    pub const Q4_0: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    repack_nibbles(&block[2..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    restore_nibbles(quants, &mut block[2..]);
}

/// The output equals that of the `gguf` Python package byte for byte.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{centred, f16_bytes};

    let (scale, quants) = centred(values, 8);
    block[..2].copy_from_slice(&f16_bytes(scale)?);
    crate::blocks::pack_nibbles(&quants, &mut block[2..]);
    Some(())
}
