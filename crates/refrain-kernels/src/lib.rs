//! Shaders, and beside each family its contract, its variants and its plain-Rust reference.
//!
//! A *family* is one folder: it documents what is computed (shapes, dtypes, formula), builds the
//! [`Call`]s that compute it on a device with given [`Traits`], and computes the same thing in plain
//! Rust, with its shaders beside that. Families are written with `kit`, in the words of `vocabulary`, and take
//! what depends on the device from [`tuning`]. This crate knows nothing of graphs, devices or models: operands are
//! numbered, and whoever records a call fills in their addresses.

pub mod attention;
pub mod cpu;
pub mod elementwise;
mod indexing;
mod kit;
mod linear;
mod norm;
mod recurrence;
pub mod reduce;
pub mod rope;
pub mod sample;
mod sequences;
pub mod sort;
pub mod tuning;
mod vocabulary;

pub use indexing::{take, take_along, write_rows};
pub use kit::{fragments, glsl};
pub use linear::{expert_matmul, expert_sum, matmul, projection, quantised};
pub use norm::rms_norm;
pub use recurrence::{causal_conv, delta_net, gated_delta};
pub use reduce::softmax;
pub use sequences::{inbox, slots};
pub use sort::{argmax, top_k};
pub use vocabulary::{
    Architecture, Call, CallOrder, DType, Dimensions, KernelText, Layout, MemoryKind, OperandSpec, Push, Traits,
    Unsupported, Values,
};
