//! GGUF's Q6_K: blocks of 256 values in groups of 16. 128 bytes of the lower four bits, 64 bytes of the upper two, a
//! signed byte a for each group, f16 d; value = (d·a)·(q − 32).

use crate::blocks::{nibble_lines, packed, store_nibble_lines, store_upper_bits, unpacked, upper_bits};
use crate::record::{GgufBlock, QuantRecord, RandomScales};
use crate::{Code, QuantFormat, RecordIntegers, ScaleRecords, Scales};

pub(super) const RECORD: QuantRecord = QuantRecord {
    name: "q6_k",
    label: "Q6_K",
    spellings: &["q6_k"],
    format: QuantFormat {
        bits: 6,
        group: 16,
        code: Code::Centred,
        scales: Scales::Records(ScaleRecords {
            words: 5,
            integers: RecordIntegers::Signed,
        }),
    },
    block: Some(GgufBlock {
        kind: 14,
        file_type: 18,
        values: 256,
        bytes: 210,
        repack,
        restore,
        scale,
        store_scale,
        bias_at: None,
        encode: encoder!(encode),
        fallback: Some("q8_0"),
    }),
    mode: None,
    random: RandomScales::Records {
        exponent: 1,
        random: 7,
        min: 10,
        with_signs: true,
    },
};

impl QuantFormat {
    /// GGUF's Q6_K: 6 bits centred on 32, groups of 16, two levels of scales.
    pub const Q6_K: QuantFormat = RECORD.format;
}

fn repack(block: &[u8], quants: &mut [u8]) {
    packed::<256>(6, quants, |values| {
        nibble_lines::<64>(&block[..128], values);
        for (half, values) in values.chunks_exact_mut(128).enumerate() {
            upper_bits(&block[128 + 32 * half..][..32], 2, 4, values);
        }
    });
}

fn restore(quants: &[u8], block: &mut [u8]) {
    store(&unpacked(6, quants), block);
}

fn store(values: &[u8; 256], block: &mut [u8]) {
    store_nibble_lines::<64>(values, &mut block[..128]);
    for (half, values) in values.chunks_exact(128).enumerate() {
        store_upper_bits(values, 2, 4, &mut block[128 + 32 * half..][..32]);
    }
}

fn scale(block: &[u8], record: &mut [u8]) {
    record[..4].copy_from_slice(&[block[208], block[209], 0, 0]);
    record[4..].copy_from_slice(&block[192..208]);
}

fn store_scale(record: &[u8], block: &mut [u8]) {
    block[208..210].copy_from_slice(&record[..2]);
    block[192..208].copy_from_slice(&record[4..]);
}

#[cfg(feature = "encode")]
fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    use crate::fit::nested_centred;

    let nested = nested_centred(32, 128, values)?;
    store_scale(&nested.record, block);
    store(&nested.quants, block);
    Some(())
}
