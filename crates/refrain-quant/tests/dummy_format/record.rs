//! A format that nobody has: 4 bits into a book of squares, groups and blocks of 64, values in their order.

use refrain_quant::tools::{half_float, half_scale, nearest, pack, spread, store_half_scale};
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
        scale: half_scale,
        store_scale: store_half_scale,
        bias_at: None,
        encode: Some(encode),
        stand_in: None,
    }),
    mode: None,
    random: RandomScales::Floats {
        random: 0x81ff,
        fixed: 4 << 10,
    },
};

fn encode(values: &[f32], block: &mut [u8]) -> Option<()> {
    let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let scale = most / 49.0;
    block[..2].copy_from_slice(&half_float(scale)?);
    let mut indices = [8; 64];
    if scale > 0.0 {
        for (index, value) in indices.iter_mut().zip(values) {
            *index = nearest(value / scale, &BOOK);
        }
    }
    pack(4, &indices, &mut block[2..]);
    let mut again = [0; 64];
    spread(4, &block[2..], &mut again);
    (again == indices).then_some(())
}
