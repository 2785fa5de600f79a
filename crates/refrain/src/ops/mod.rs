//! The array operations: each checks shapes and adds a lazy node.

mod argmax;
mod call_site;
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
pub(crate) mod scatter;
mod shape;
pub(crate) mod slice_update;
pub(crate) mod softmax;
mod sort;
mod take;
pub(crate) mod take_along;
pub(crate) mod top_k;
pub(crate) mod write_rows;

pub(crate) use call_site::CallSite;

use crate::Array;
pub(crate) use crate::array::resolve_axis;

/// Resolves an axis of `x`; negative axes count from the last.
pub(crate) fn axis_of(x: &Array, axis: isize) -> Option<usize> {
    resolve_axis(axis, x.rank())
}
