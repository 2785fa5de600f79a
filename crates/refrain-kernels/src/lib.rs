//! Compute kernels: GLSL shaders, the Rust code that selects and configures them, and CPU references.
//!
//! A kernel *family* is one folder. It documents the computation (shapes, dtypes, formula), builds the [`Call`]s for a
//! device with given [`Traits`], and has a reference in plain Rust next to its shaders. Families share the helpers of
//! `kit` and the types of `vocabulary`; sizes that depend on the device come from [`tuning`].
//!
//! This crate knows nothing of graphs, Vulkan devices or models. Operands are numbered, and the code that records a
//! call fills in their addresses.

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

pub use indexing::{combine_rows, take, take_along, write_rows};
pub use kit::{fragments, glsl};
pub use linear::{expert_matmul, expert_sum, matmul, projection, quantised};
pub use norm::rms_norm;
pub use recurrence::{RecurrenceForm, causal_conv, delta_net, gated_delta};
pub use reduce::softmax;
pub use sequences::{inbox, slots};
pub use sort::{argmax, top_k};
pub use vocabulary::{
    Architecture, Call, CallOrder, DType, Dimensions, KernelSource, Layout, MemoryKind, OperandSpec, Push, Traits,
    Unsupported, Values,
};
