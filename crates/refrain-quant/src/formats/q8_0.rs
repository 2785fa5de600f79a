//! GGUF's Q8_0: blocks of 32 values with an f16 scale d, then 32 signed bytes q; value = d·q.

use crate::blocks::{f16_scale, store_f16_scale};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q8_0",
    label: "Q8_0",
    spellings: &["q8_0"],
    format: QuantFormat {
        bits: 8,
        group: 32,
        code: Code::Signed,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 8,
        file_type: 7,
        values: 32,
        bytes: 34,
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
        random: 0x01ff,
        fixed: 3 << 10,
    },
};

impl QuantFormat {
    /// GGUF's Q8_0: signed 8 bits, groups of 32.
    pub const Q8_0: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    quants.copy_from_slice(&block[2..]);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    block[2..].copy_from_slice(quants);
}

/// The output equals that of the `gguf` Python package byte for byte.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{f16_bytes, largest_magnitude, reciprocal};

    let scale = largest_magnitude(values).abs() / 127.0;
    let inverse = reciprocal(scale);
    block[..2].copy_from_slice(&f16_bytes(scale)?);
    for (out, value) in block[2..].iter_mut().zip(values) {
        *out = (value * inverse).round() as i8 as u8;
    }
    Some(())
}
