//! The interface for graph rewrites, which replace several nodes by one that a single dispatch computes.
//!
//! The library's own rewrites ([`passes::regions`](crate::passes::regions)) join matrix products of any program with
//! what surrounds them. Rewrites for particular operations come with these
//! ([`Operation::rewrites`](crate::operation::Operation::rewrites)) and run if a graph contains such an operation.

mod edges;
mod expression;
mod replacement;

pub(crate) use edges::operands;
pub use edges::{computes, norm_of, rows, same_elements};
pub use expression::reordered;
pub use refrain_kernels::rms_norm::Norm;
pub use replacement::{Replacement, replace};

use crate::Device;
use crate::graph::Graph;

/// A graph pass that belongs to an operation.
pub struct Rewrite {
    /// When it runs, relative to the library's own rewrites.
    pub stage: RewriteStage,
    /// Returns a graph that computes the same. The caller removes nodes that nothing needs any more. Leaves come before
    /// all other nodes.
    pub run: fn(Graph, &Device) -> Graph,
}

/// When a [`Rewrite`] runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RewriteStage {
    /// Before products are joined with what surrounds them.
    BeforeProducts,
    /// After products are joined.
    AfterProducts,
}
