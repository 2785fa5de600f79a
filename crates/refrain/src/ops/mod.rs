//! What can be done with arrays: each operation checks shapes and makes a lazy node.

mod elementwise;
mod experts;
pub mod fast;
mod index;
pub mod join;
mod linear;
mod operation;
pub mod quantised;
mod recurrent;
mod reduce;
mod sampling;
mod shape;

pub(crate) use operation::Operation;

use crate::Array;

/// Resolves an axis that may count from the last dimension.
pub(crate) fn axis_of(x: &Array, axis: isize) -> Option<usize> {
    let resolved = if axis < 0 { axis + x.rank() as isize } else { axis };
    usize::try_from(resolved).ok().filter(|&a| a < x.rank())
}
