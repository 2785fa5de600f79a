//! Regions: sequences of nodes that one dispatch can compute, found in the graph by what they are and not
//! by the model that they belong to. Each file finds one pattern; what fits none stays as it is.

mod attention;
mod delta_net;
mod edges;
mod epilogue;
mod experts;
mod norm;
mod product;
mod replacement;
mod siblings;

use super::canonicalise::sweep;
use crate::Device;
use crate::graph::Graph;

/// Joins products, those of the experts of few tokens among them, with the elementwise node that uses them, with the
/// norm before them, and with each other where they read the same; delta nets over few tokens from their convolution
/// to their gate; and attention of single tokens with what makes and keeps their keys and values.
pub fn regions(graph: Graph, device: &Device) -> Graph {
    let graph = leaves_first(graph);
    let graph = sweep(delta_net::join(graph, device));
    let graph = sweep(experts::join(graph, device));
    let graph = sweep(experts::choose(graph, device));
    let graph = sweep(epilogue::join(graph, device));
    let graph = sweep(norm::join(graph, device));
    let graph = sweep(siblings::join(graph, device));
    sweep(attention::join(graph, device))
}

/// Leaves compute nothing, so they may stand before everything: a node may then move up to the last of
/// the others that it needs.
fn leaves_first(graph: Graph) -> Graph {
    let count = graph.nodes.len();
    let (leaves, others): (Vec<usize>, Vec<usize>) = (0..count).partition(|&n| graph.nodes[n].primitive.is_leaf());
    let sequence: Vec<usize> = leaves.into_iter().chain(others).collect();
    graph.rearranged(&sequence)
}
