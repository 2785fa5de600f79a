//! Matrix products with float and quantised weights, fused with norms and epilogues, also for mixtures of experts.
//!
//! - `section`, `router` and `matmul_problem` describe the requested product.
//! - `problem`, `routing` and `router_top_k` hold the same with checked operands; weights come from `sources`.
//! - `arguments`, `source` and `epilogue` generate the arguments and GLSL that all kernels share.
//! - Each of `algorithms` says whether it can compute a problem, its cost and its calls. The cheapest one is used.

mod algorithms;
mod arguments;
mod epilogue;
pub mod expert_matmul;
mod expert_projection;
pub mod expert_sum;
pub mod matmul;
mod matmul_problem;
mod problem;
pub mod projection;
pub mod quantised;
mod router;
mod router_top_k;
mod routing;
mod section;
mod source;
mod sources;
