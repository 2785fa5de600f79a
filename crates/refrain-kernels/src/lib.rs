//! Shaders, and beside each family its contract, its variants and its plain-Rust reference.
//!
//! A *family* is one module: it documents what is computed (shapes, dtypes, formula), builds the
//! [`Call`]s that compute it on a device with given [`Traits`], and computes the same thing in plain
//! Rust. This crate knows nothing of graphs, devices or models: operands are numbered, and whoever
//! records a call fills in their addresses.

pub mod argmax;
mod arguments;
pub mod attention;
mod call;
pub mod causal_conv;
pub mod cpu;
pub mod delta_net;
mod dtype;
pub mod elementwise;
pub mod expert_matmul;
pub mod fragments;
pub mod gated_delta;
mod gather;
pub mod glsl;
pub mod inbox;
mod iterations;
mod layout;
pub mod matmul;
mod order;
pub mod projection;
pub mod quantised;
mod recurrence;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
mod rows;
pub mod sample;
pub mod slots;
pub mod softmax;
pub mod sort;
pub mod take;
pub mod take_along;
mod text;
mod threads;
pub mod top_k;
pub mod tuning;
mod values;
mod walk;
pub mod write_rows;

pub use call::{Call, KernelText, OperandSpec, Push, Traits, Unsupported};
pub use dtype::DType;
pub use layout::Layout;
pub use values::Values;
