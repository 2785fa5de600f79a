//! Fast CPU kernels: the results of the plain references, in another order of summation.
//!
//! They use arrays of eight floats (`f32x8.rs`), which compilers turn into vector instructions of any processor. On
//! x86-64 there is also an AVX2 version, chosen at run time, which multiplies four-bit weights with one vector in
//! integers (`nibbles.rs`).
//!
//! One to three vectors are multiplied with rows as they are stored, more vectors with unpacked rows. With quantised
//! weights the bits of a token's results depend on which of the two was used, and on nothing else.

mod attention;
mod blocks;
mod dense;
mod f32x8;
mod nibbles;
mod packed;
mod pool;
mod product;
mod scales;
mod sum;
mod tile;
mod weights;

pub use attention::attention;
pub use pool::with_awake_pool;
pub use sum::sum;
pub use weights::FastRows;

/// Values per vector in [`attention()`]: head dimensions must be multiples of it.
pub const LANES: usize = f32x8::F32x8::LANES;
