//! What the CPU executor computes with where speed matters: what the plain references compute, the same
//! values of weights among it, in another order of summation.
//!
//! Written with arrays of eight numbers (`octet.rs`) that a compiler turns into vector instructions of any
//! processor; on x86-64 once more for AVX2, chosen when the program runs. A product's sums are taken in the
//! same order however many vectors it has: a token's results do not depend on the tokens beside it.

mod attention;
mod blocks;
mod dense;
mod octet;
mod packed;
mod product;
mod scales;
mod team;
mod tile;
mod weights;

pub use attention::attention;
pub use team::together;
pub use weights::FastRows;

/// Neighbouring values that [`attention()`] takes together.
pub const LANES: usize = octet::Octet::COUNT;
