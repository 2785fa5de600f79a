//! What can be done with arrays: each operation checks shapes and makes a lazy node.

mod argmax;
mod caller;
mod elementwise;
pub mod fast;
pub mod join;
pub(crate) mod matmul;
pub mod number;
pub(crate) mod projection;
pub(crate) mod quant_matmul;
mod quant_take;
pub mod quantised;
pub mod random;
pub mod reduce;
pub(crate) mod rms_norm;
mod shape;
pub(crate) mod softmax;
mod sort;
mod take;
pub(crate) mod take_along;
pub(crate) mod top_k;
pub(crate) mod write_rows;

pub(crate) use caller::Caller;

use crate::Array;

/// Resolves an axis that may count from the last dimension.
pub(crate) fn axis_of(x: &Array, axis: isize) -> Option<usize> {
    resolve(axis, x.rank())
}

/// The same of `rank` dimensions.
pub(crate) fn resolve(axis: isize, rank: usize) -> Option<usize> {
    let resolved = if axis < 0 {
        axis.checked_add_unsigned(rank)?
    } else {
        axis
    };
    usize::try_from(resolved).ok().filter(|&axis| axis < rank)
}
