//! OCP's MXFP4: groups of 32 numbers of 4 bits (E2M1) with an exponent of two each (E8M0). GGUF has blocks of the
//! exponent's byte and 16 bytes, of which byte j holds value j in its low and value j + 16 in its high half; elsewhere
//! exponents lie apart and values in their order.

use crate::blocks::{pack_halves, store_packed_halves};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

/// Twice what E2M1 stands for.
const BOOK: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "mxfp4",
    label: "MXFP4",
    spellings: &["mxfp4"],
    format: QuantFormat {
        bits: 4,
        group: 32,
        code: Code::Book(BOOK),
        scales: Scales::E8M0,
    },
    block: Some(GgufBlock {
        kind: 39,
        file_type: 38,
        values: 32,
        bytes: 17,
        repack,
        restore,
        scale,
        store_scale,
        bias_at: None,
        encode: encoder!(encode),
        stand_in: None,
    }),
    mode: Some("mxfp4"),
    random: RandomScales::Bytes { usual: 120 },
};

impl QuantFormat {
    /// OCP's MXFP4: E2M1, groups of 32 with an exponent each.
    pub const MXFP4: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    pack_halves(&block[1..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store_packed_halves(quants, &mut block[1..]);
}

fn scale(block: &[u8], exponent: &mut [u8]) {
    exponent[0] = block[0];
}

fn store_scale(exponent: &[u8], block: &mut [u8]) {
    block[0] = exponent[0];
}

/// Byte-equal to the `gguf` Python package's.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::blocks::store_halves;
    use crate::fit::{furthest, nearest};

    let most = furthest(values).abs();
    // E2M1's largest exponent is 2.
    let exponent = if most > 0.0 {
        most.log2().floor() - 2.0 + 127.0
    } else {
        0.0
    };
    let exponent = exponent.clamp(0.0, 254.0) as u8;
    block[0] = exponent;
    let scale = crate::ScaleType::U8.read(&[exponent]);
    let mut quants = [0; 32];
    for (q, value) in quants.iter_mut().zip(values) {
        *q = nearest(value / scale, &BOOK);
    }
    store_halves(&quants, &mut block[1..]);
    Some(())
}
