//! Regions: sequences of nodes that one dispatch can compute, found in the graph by what they are and not
//! by the model that they belong to. Each file finds one pattern; what fits none stays as it is.

mod asked;
mod epilogue;
mod norm;
mod product;
mod siblings;

use std::any::TypeId;

use asked::AskedDevice;

use super::canonicalise::sweep;
use crate::graph::Graph;
use crate::rewrite::{Rewrite, RewriteStage};
use crate::{Device, Primitive};

/// Joins products with the elementwise node that uses them, with the norm before them, and with each other where they
/// read the same. Before and behind that, what the graph's operations bring ([`crate::rewrite`]).
pub fn regions(graph: Graph, device: &Device) -> Graph {
    let graph = leaves_first(graph);
    let graph = brought(graph, device, RewriteStage::BeforeProducts);
    let asked = AskedDevice::new(device);
    let graph = sweep(epilogue::join(graph, &asked));
    let graph = sweep(norm::join(graph, &asked));
    let graph = sweep(siblings::join(graph, &asked));
    brought(graph, device, RewriteStage::BehindProducts)
}

/// Runs the rewrites of a stage that the graph's operations bring, those of each type once, in the order in which their
/// operations stand.
fn brought(graph: Graph, device: &Device, stage: RewriteStage) -> Graph {
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

/// Leaves compute nothing, so they may stand before everything: a node may then move up to the last of
/// the others that it needs.
fn leaves_first(graph: Graph) -> Graph {
    let count = graph.nodes.len();
    let (leaves, others): (Vec<usize>, Vec<usize>) = (0..count).partition(|&n| graph.nodes[n].primitive.is_leaf());
    let sequence: Vec<usize> = leaves.into_iter().chain(others).collect();
    graph.rearranged(&sequence)
}
