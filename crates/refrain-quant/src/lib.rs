//! Quantised weight formats. Each format is one [`QuantRecord`] in one file of `formats/`; the rest of the workspace
//! contains no format-specific code.
//!
//! A [`QuantFormat`] describes the layout that kernels read: dense row-major planes.
//!
//! - **Quants** are u32 words. Value `k` of a row is in word `k·bits/32` at bit `(k·bits) % 32`, low bits first.
//! - **Scales** are floats (f32, f16 or bf16), one for each group of a row; or records of u32 words for 256 values
//!   each ([`ScaleRecords`]); or bytes that hold powers of two.
//! - **Biases** have the layout of the scales. Only some formats have them.
//!
//! Weights of a file either have this layout already or are repacked block by block ([`GgufBlock`]).
//!
//! Encoders are behind the feature `encode`, so that readers do not compile them.

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

pub use format::{Code, QuantFormat, RECORD_VALUES, RecordIntegers, ScaleRecords, Scales, UnsupportedFormat};
#[cfg(feature = "encode")]
pub use formats::quantise_affine;
pub use formats::{by_block_kind, by_name, by_spelling, records};
pub use planes::QuantPlanes;
pub use record::{EncodeBlock, GgufBlock, QuantRecord, RandomScales};
pub use scale_type::ScaleType;
pub use shader::{Define, declarations, unpacking};

/// Building blocks for records that are defined outside this crate.
pub mod tools {
    pub use crate::bits::{pack_bits, unpack_bits};
    pub use crate::blocks::{f16_scale, pack_nibbles, store_f16_scale, unpack_nibbles};
    #[cfg(feature = "encode")]
    pub use crate::fit::{f16_bytes, largest_magnitude, nearest};
}
