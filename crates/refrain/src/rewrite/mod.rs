//! The door for rewrites of graphs: sequences of nodes that one dispatch can compute become one.
//!
//! The library's own find what products of any array program may have before and behind them
//! ([`passes::regions`](crate::passes::regions)). Those of one kind of program come with its operations
//! ([`Operation::rewrites`](crate::operation::Operation::rewrites)), and run where a graph has such an operation.

mod edges;
mod expression;
mod replacement;

pub(crate) use edges::operands;
pub use edges::{computes, norm_of, rows, same_places};
pub use expression::reordered;
pub use refrain_kernels::rms_norm::Norm;
pub use replacement::{Replacement, replace};

use crate::Device;
use crate::graph::Graph;

/// A pass that comes with an operation.
pub struct Rewrite {
    /// Where among the library's own it stands.
    pub stage: RewriteStage,
    /// The graph that computes the same on the device; what nothing needs any more is dropped behind it. Leaves stand
    /// before all other nodes.
    pub run: fn(Graph, &Device) -> Graph,
}

/// When a [`Rewrite`] runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RewriteStage {
    /// Before products are joined with what stands before and behind them.
    BeforeProducts,
    /// After that.
    BehindProducts,
}
