//! Quantised formats: each is one [`QuantRecord`] in one file of `formats/`, which is all that the rest of the
//! workspace knows of it.
//!
//! A [`QuantFormat`] is how a matrix lies in memory where kernels read it: row-major planes without gaps. **Quants**
//! are u32 words, value `k` of a row in word `k·bits/32` at bit `(k·bits) % 32`, low bits first. **Scales** are
//! floats (f32, f16 or bf16), one for each group of a row; or records of u32 words for 256 values each
//! ([`ScaleRecords`]); or bytes, exponents of two. **Biases** lie as the scales do, where the format has them.
//! What a file has is repacked into that, a block at a time ([`GgufBlock`]), or lies so already.
//!
//! Who only reads formats compiles no encoder: these come with the feature `encode`.

mod bits;
mod blocks;
#[cfg(feature = "encode")]
mod fit;
mod format;
mod formats;
mod planes;
mod record;
mod scale_type;
mod shader;

pub use format::{Code, QuantFormat, RECORD_VALUES, RecordIntegers, ScaleRecords, Scales, Unfit};
#[cfg(feature = "encode")]
pub use formats::quantise_affine;
pub use formats::{by_block_kind, by_name, by_spelling, records};
pub use planes::QuantPlanes;
pub use record::{EncodeBlock, GgufBlock, QuantRecord, RandomScales};
pub use scale_type::ScaleType;
pub use shader::{Define, declarations, unpacking};

/// What records of formats elsewhere are made with.
pub mod tools {
    pub use crate::bits::{pack, spread};
    pub use crate::blocks::{half_scale, halves, store_half_scale, store_halves};
    #[cfg(feature = "encode")]
    pub use crate::fit::{furthest, half_float, nearest};
}
