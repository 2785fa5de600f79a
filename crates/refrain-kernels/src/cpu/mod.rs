//! What the CPU executor computes with where speed matters: what the plain references compute, the same
//! values of weights among it, in another order of summation.
//!
//! Written with arrays of eight numbers (`octet.rs`) that a compiler turns into vector instructions of any
//! processor; on x86-64 once more for AVX2, chosen when the program runs, where values of four bits meet one vector as
//! integers (`nibbles.rs`). One to three vectors meet rows as they are
//! stored, more of them meet unpacked rows: with quantised weights the bits of a token's results depend on which of
//! the two it was, and on nothing else beside it.

mod attention;
mod blocks;
mod dense;
mod nibbles;
mod octet;
mod packed;
mod product;
mod scales;
mod sum;
mod team;
mod tile;
mod weights;

pub use attention::attention;
pub use sum::sum;
pub use team::in_team;
pub use weights::FastRows;

/// Neighbouring values that [`attention()`] takes together.
pub const LANES: usize = octet::Octet::COUNT;
