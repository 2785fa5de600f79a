//! Shaders, and beside each family its contract, its variants and its plain-Rust reference.
//!
//! A *family* is one module: it documents what is computed (shapes, dtypes, formula), builds the
//! [`Call`]s that compute it on a device with given [`Traits`], and computes the same thing in plain
//! Rust. This crate knows nothing of graphs, devices or models: operands are numbered, and whoever
//! records a call fills in their addresses.

pub mod attention;
mod call;
mod dtype;
pub mod glsl;
mod layout;
pub mod matmul;
pub mod quantised;
pub mod rms_norm;
pub mod rope;
mod text;
pub mod tuning;
mod values;
mod walk;

pub use call::{Call, Kernel, Operand, Push, Traits, Unsupported};
pub use dtype::DType;
pub use layout::Layout;
pub use values::Values;
