//! Joins nodes that one dispatch can compute ("regions"). Patterns are found in the graph, whatever model it comes
//! from. Each file finds one pattern; nodes that fit none stay as they are.

mod epilogue;
mod norm;
mod product;
mod siblings;
mod support;

use std::any::TypeId;

use support::SupportCache;

use super::canonicalise::sweep;
use crate::graph::Graph;
use crate::rewrite::{Rewrite, RewriteStage};
use crate::{Device, Primitive};

/// Joins products with the elementwise node that uses them, with the norm before them, and with each other if they read
/// the same x. Before and after that, runs the rewrites of the graph's operations ([`crate::rewrite`]).
pub fn regions(graph: Graph, device: &Device) -> Graph {
    let graph = leaves_first(graph);
    let graph = rewritten(graph, device, RewriteStage::BeforeProducts);
    let support = SupportCache::new(device);
    let graph = sweep(epilogue::join(graph, &support));
    let graph = sweep(norm::join(graph, &support));
    let graph = sweep(siblings::join(graph, &support));
    rewritten(graph, device, RewriteStage::AfterProducts)
}

/// Runs the rewrites of one stage, once for each type of operation in the graph, in the order in which these appear.
fn rewritten(graph: Graph, device: &Device, stage: RewriteStage) -> Graph {
    let mut types: Vec<TypeId> = Vec::new();
    let mut rewrites: Vec<&'static Rewrite> = Vec::new();
    for node in &graph.nodes {
        let Primitive::Operation(operation) = &node.primitive else {
            continue;
        };
        let own = (**operation).type_id();
        if !types.contains(&own) {
            types.push(own);
            rewrites.extend(operation.rewrites().iter().filter(|rewrite| rewrite.stage == stage));
        }
    }
    (rewrites.iter()).fold(graph, |graph, rewrite| sweep((rewrite.run)(graph, device)))
}

/// Moves leaves to the front. They compute nothing, and any node may then move up to the last other node that it needs.
fn leaves_first(graph: Graph) -> Graph {
    let count = graph.nodes.len();
    let (leaves, others): (Vec<usize>, Vec<usize>) = (0..count).partition(|&n| graph.nodes[n].primitive.is_leaf());
    let sequence: Vec<usize> = leaves.into_iter().chain(others).collect();
    graph.rearranged(&sequence)
}
