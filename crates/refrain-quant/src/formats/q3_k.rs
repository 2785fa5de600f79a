//! GGUF's Q3_K: blocks of 256 values in groups of 16. 32 bytes of third bits, 64 bytes of the lower two bits, 12 bytes
//! of 6-bit factors a, one for each group, f16 d; value = (d·(a − 32))·(q − 4).

use crate::blocks::{lines, packed, store_lines, store_upper_bits, unpacked, upper_bits};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, RecordIntegers, ScaleRecords, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q3_k",
    label: "Q3_K",
    spellings: &["q3_k"],
    format: QuantFormat {
        bits: 3,
        group: 16,
        code: Code::Centred,
        scales: Scales::Records(ScaleRecords {
            words: 5,
            integers: RecordIntegers::Signed,
        }),
    },
    block: Some(GgufBlock {
        kind: 11,
        file_type: 11,
        values: 256,
        bytes: 110,
        repack,
        restore,
        scale,
        store_scale,
        bias_at: None,
        encode: encoder!(encode),
        fallback: Some("q4_0"),
    }),
    mode: None,
    random: RandomScales::Records {
        exponent: 3,
        random: 7,
        min: 24,
        with_signs: true,
    },
};

impl QuantFormat {
    /// GGUF's Q3_K: 3 bits centred on 4, groups of 16, two levels of scales.
    pub const Q3_K: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<256>(3, quants, |values| {
        lines(&block[32..96], 2, values);
        upper_bits(&block[..32], 1, 2, values);
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(3, quants), block);
}

fn store(values: &[u8; 256], block: &mut [u8]) {
    store_lines(values, 2, &mut block[32..96]);
    store_upper_bits(values, 1, 2, &mut block[..32]);
}

/// The factors' lower four bits are in the nibbles of bytes 0 to 7, the upper two in the bit pairs of bytes 8 to 11. A
/// stored factor is 32 larger.
fn scale(block: &[u8], record: &mut [u8]) {
    let stored = &block[96..108];
    record[..4].copy_from_slice(&[block[108], block[109], 0, 0]);
    for (g, out) in record[4..].iter_mut().enumerate() {
        let low = stored[g % 8] >> (4 * (g / 8)) & 15;
        let high = stored[8 + g % 4] >> (2 * (g / 4)) & 3;
        *out = (low | high << 4).wrapping_sub(32);
    }
}

fn store_scale(record: &[u8], block: &mut [u8]) {
    block[108..110].copy_from_slice(&record[..2]);
    let out = &mut block[96..108];
    out.fill(0);
    for (g, integer) in record[4..].iter().enumerate() {
        let factor = integer.wrapping_add(32) & 63;
        out[g % 8] |= (factor & 15) << (4 * (g / 8));
        out[8 + g % 4] |= (factor >> 4) << (2 * (g / 4));
    }
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::nested_centred;

    let nested = nested_centred(4, 32, values)?;
    store_scale(&nested.record, block);
    store(&nested.quants, block);
    Some(())
}
