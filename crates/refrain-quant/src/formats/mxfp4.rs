//! OCP's MXFP4: groups of 32 E2M1 values (4 bits) with one E8M0 exponent. A GGUF block is the exponent's byte and 16
//! bytes; byte j holds value j in its low nibble and value j + 16 in its high one. Other files store exponents in a
//! separate tensor and values in order.

use crate::blocks::{repack_nibbles, restore_nibbles};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, Scales};

/// Twice the E2M1 values, which makes them integers.
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
        fallback: None,
    }),
    mode: Some("mxfp4"),
    random: RandomScales::Bytes { typical: 120 },
};

impl QuantFormat {
    /// OCP's MXFP4: E2M1, groups of 32 with one exponent each.
    pub const MXFP4: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    repack_nibbles(&block[1..], quants);
}

fn restore(quants: &[u8], block: &mut [u8]) {
    restore_nibbles(quants, &mut block[1..]);
}

fn scale(block: &[u8], exponent: &mut [u8]) {
    exponent[0] = block[0];
}

fn store_scale(exponent: &[u8], block: &mut [u8]) {
    block[0] = exponent[0];
}

/// The output equals that of the `gguf` Python package byte for byte.
#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::blocks::pack_nibbles;
    use crate::fit::{largest_magnitude, nearest};

    let max = largest_magnitude(values).abs();
    // E2M1's largest exponent is 2.
    let exponent = if max > 0.0 {
        max.log2().floor() - 2.0 + 127.0
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
    pack_nibbles(&quants, &mut block[1..]);
    Some(())
}
