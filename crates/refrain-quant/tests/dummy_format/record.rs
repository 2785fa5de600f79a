//! A made-up format: 4-bit indices into a codebook of signed squares, groups and blocks of 64, values in order.

use refrain_quant::tools::{f16_bytes, f16_scale, nearest, pack_bits, store_f16_scale, unpack_bits};
use refrain_quant::{Code, GgufBlock, QuantFormat, QuantRecord, RandomScales, Scales};

const BOOK: [i8; 16] = [-64, -49, -36, -25, -16, -9, -4, -1, 0, 1, 4, 9, 16, 25, 36, 49];

pub const RECORD: QuantRecord = QuantRecord {
    name: "dummy",
    label: "DUMMY",
    spellings: &["dummy"],
    format: QuantFormat {
        bits: 4,
        group: 64,
        code: Code::Book(BOOK),
        scales: Scales::Float,
    },
    block: Some(GgufBlock {
        kind: 10_000,
        file_type: 10_000,
        values: 64,
        bytes: 34,
        repack: |block, quants| quants.copy_from_slice(&block[2..]),
        restore: |quants, block| block[2..].copy_from_slice(quants),
        scale: f16_scale,
        store_scale: store_f16_scale,
        bias_at: None,
        encode: Some(encode),
        fallback: None,
    }),
    mode: None,
    random: RandomScales::Floats {
        random: 0x81ff,
        fixed: 4 << 10,
    },
};

fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    let max = values.iter().fold(0.0f32, |max, value| max.max(value.abs()));
    let scale = max / 49.0;
    block[..2].copy_from_slice(&f16_bytes(scale)?);
    let mut indices = [8; 64];
    if scale > 0.0 {
        for (index, value) in indices.iter_mut().zip(values) {
            *index = nearest(value / scale, &BOOK);
        }
    }
    pack_bits(4, &indices, &mut block[2..]);
    let mut again = [0; 64];
    unpack_bits(4, &block[2..], &mut again);
    (again == indices).then_some(())
}
