//! The interface for operations: the [`Operation`] trait, and the types and helpers that implementations need.
//!
//! All that the library knows of an operation is in its implementation of the trait. Operations of this crate, of
//! `refrain-lm` and of users are treated alike.

mod apply;
mod interface;
mod kernels;
pub(crate) mod prelude;
pub(crate) mod spec;

pub use interface::{Batched, Operation};
pub use kernels::{Kernels, renumber};
pub use spec::{ArraySpec, HostArray, exact_inputs, operands, operands_with_optional};

pub use crate::execute::{HostInputs, HostMatrix, HostStep};
pub use crate::ops::projection::JoinedProducts;
pub use crate::ops::quantised::check_planes;
pub use crate::ops::reduce::Reduce;
pub use crate::ops::slice_update::SliceUpdateInPlace;
pub use crate::ops::softmax::Softmax;
pub use crate::ops::take_along::TakeAlong;
pub use crate::ops::top_k::TopK;
pub use crate::ops::write_rows::WriteRows;
pub use refrain_kernels::{Call, CallOrder, KernelSource, OperandSpec, Push, Traits, Unsupported, Values, glsl};
