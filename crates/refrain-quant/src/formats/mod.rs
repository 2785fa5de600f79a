//! The formats, one file each, and the table of them.

/// The encoder of a block, or `None` without the feature `encode`.
#[cfg(feature = "encode")]
macro_rules! encoder {
    ($encode:ident) => {
        Some($encode)
    };
}
#[cfg(not(feature = "encode"))]
macro_rules! encoder {
    ($encode:ident) => {
        None
    };
}

mod iq4_nl;
mod iq4_xs;
mod mlx_affine;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod six_bits;

use crate::QuantRecord;
#[cfg(feature = "encode")]
pub use mlx_affine::quantise_affine;

/// GGUF's formats, in table order.
const BLOCKS: [QuantRecord; 13] = [
    q8_0::RECORD,
    q4_0::RECORD,
    q4_1::RECORD,
    q5_0::RECORD,
    q5_1::RECORD,
    iq4_nl::RECORD,
    iq4_xs::RECORD,
    mxfp4::RECORD,
    q2_k::RECORD,
    q3_k::RECORD,
    q4_k::RECORD,
    q5_k::RECORD,
    q6_k::RECORD,
];

/// All formats: GGUF's, then MLX's.
pub(crate) const RECORDS: [QuantRecord; BLOCKS.len() + mlx_affine::RECORDS.len()] = {
    let mut all = [BLOCKS[0]; BLOCKS.len() + mlx_affine::RECORDS.len()];
    let mut number = 0;
    while number < all.len() {
        all[number] = if number < BLOCKS.len() {
            BLOCKS[number]
        } else {
            mlx_affine::RECORDS[number - BLOCKS.len()]
        };
        number += 1;
    }
    all
};

static TABLE: [QuantRecord; RECORDS.len()] = RECORDS;

/// The records of all formats: GGUF's, then MLX's.
pub fn records() -> impl Iterator<Item = &'static QuantRecord> {
    TABLE.iter()
}

/// Finds a format by [`QuantRecord::name`].
pub fn by_name(name: &str) -> Option<&'static QuantRecord> {
    records().find(|record| record.name == name)
}

/// Finds a format by one of [`QuantRecord::spellings`], case-insensitively.
pub fn by_spelling(spelling: &str) -> Option<&'static QuantRecord> {
    let spelling = spelling.to_ascii_lowercase();
    records().find(|record| record.spellings.contains(&&spelling[..]))
}

/// Finds a format by GGML's number of its tensor type.
pub fn by_block_kind(kind: u32) -> Option<&'static QuantRecord> {
    records().find(|record| record.block.is_some_and(|block| block.kind == kind))
}
