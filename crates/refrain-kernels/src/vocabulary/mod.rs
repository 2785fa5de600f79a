//! What is said of kernels: operands, calls, devices' traits, and why there is no kernel.

mod call;
mod dtype;
mod layout;
mod matrix_cores;
mod values;

pub use call::{Architecture, Call, CallOrder, KernelText, MemoryKind, OperandSpec, Push, Traits, Unsupported};
pub use dtype::DType;
pub use layout::{Dimensions, Layout};
pub use matrix_cores::{FragmentOrder, MatrixCores};
pub use values::Values;
