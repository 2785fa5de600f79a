//! What the operations of this crate import: the interface without the operations that [`crate::operation`] re-exports.

pub(crate) use super::interface::Operation;
pub(crate) use super::kernels::{Kernels, renumber};
pub(crate) use super::spec::{self, ArraySpec, HostArray, exact_inputs};
pub(crate) use crate::execute::{HostInputs, HostMatrix, HostStep};
pub(crate) use refrain_kernels::{OperandSpec, Traits, Unsupported, Values};
