//! GGUF's Q4_0: blocks of 32 values, an f16 scale d, then 16 bytes, of which byte j holds value j in its low and value
//! j + 16 in its high half; value = d·(q − 8).

use crate::blocks::{half_scale, pack_halves, store_half_scale, store_packed_halves};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q4_0",
    label: "Q4_0",
    spellings: &["q4_0"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Middle,
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 2,
        file_type: 2,
        values: 32,
        bytes: 18,
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
        fixed: 7 << 10,
    },
};

impl QuantFormat {
    /// GGUF's Q4_0: 4 bits, groups of 32, around 8.
    pub const Q4_0: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    pack_halves(&block[2..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store_packed_halves(quants, &mut block[2..]);
}

/// Byte-equal to the `gguf` Python package's.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::{centred, half_float};

    let (scale, quants) = centred(values, 8);
    block[..2].copy_from_slice(&half_float(scale)?);
    crate::blocks::store_halves(&quants, &mut block[2..]);
    Some(())
}
