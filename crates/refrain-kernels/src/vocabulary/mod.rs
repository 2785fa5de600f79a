//! Types that all kernel families share: operands, calls, device traits, and the error [`Unsupported`].

mod call;
mod dtype;
mod layout;
mod matrix_cores;
mod values;

pub use call::{Architecture, Call, CallOrder, KernelSource, MemoryKind, OperandSpec, Push, Traits, Unsupported};
pub use dtype::DType;
pub use layout::{Dimensions, Layout};
pub use matrix_cores::{FragmentOrder, MatrixCores};
pub use values::Values;
