//! Products with matrices: of floats and of quantised weights, with what stands before and behind them, and of the
//! experts that tokens are routed to.
//!
//! What is asked (`section`, `router`, `matmul_problem`) becomes a problem of checked operands (`problem`, `routing`,
//! `choice`) whose weights come from `sources`; `arguments`, `source` and `epilogue` write what all its kernels share. Each
//! of `algorithms` says whether it can compute a problem, what that costs and how it is called; the one that costs least is
//! taken.

mod algorithms;
mod arguments;
mod choice;
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
mod routing;
mod section;
mod source;
mod sources;
