//! Products with matrices: of floats and of quantised weights, with what stands before and behind them, and of the
//! experts that tokens are routed to.

pub mod expert_matmul;
pub mod matmul;
pub mod projection;
pub mod quantised;
