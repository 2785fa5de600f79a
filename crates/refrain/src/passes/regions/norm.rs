//! Joins a norm with the products that are its only users: each computes the norm itself.

use super::product::Product;
use super::support::SupportCache;
use crate::graph::{Edge, Graph, Node};
use crate::rewrite::{Norm, computes, norm_of};
use crate::{DType, Primitive};

/// Makes norms part of the products that are their only users.
pub(super) fn join(mut graph: Graph, device: &SupportCache<'_>) -> Graph {
    let users = graph.users();
    for (number, users) in users.iter().enumerate() {
        for (user, node) in joined(&graph, number, users, device).unwrap_or_default() {
            graph.nodes[user] = node;
        }
    }
    graph
}

/// The users of norm `number` with the norm joined into each, if all of them support it.
fn joined(graph: &Graph, number: usize, users: &[usize], device: &SupportCache<'_>) -> Option<Vec<(usize, Node)>> {
    let norm = &graph.nodes[number];
    if norm_of(norm).is_none() || graph.outputs.iter().any(|e| e.node == number) {
        return None;
    }
    users
        .iter()
        .map(|&user| {
            let Some(mut product) = Product::of(graph, user, device) else {
                return joined_operation(graph, user, number, device).map(|node| (user, node));
            };
            let (kind, source) = norm_source(graph, user, number)?;
            if product.projection.norm.replace(kind).is_some() {
                return None;
            }
            let inputs = [source].into_iter().chain(norm.inputs[1..].iter().cloned());
            product.inputs = inputs.chain(product.inputs.drain(1..)).collect();
            product.supports(graph, device).then(|| (user, product.into_node()))
        })
        .collect()
}

/// Node `user`, an operation, with norm `number` of its first input joined into it.
fn joined_operation(graph: &Graph, user: usize, number: usize, device: &SupportCache<'_>) -> Option<Node> {
    let Primitive::Operation(operation) = &graph.nodes[user].primitive else {
        return None;
    };
    let (kind, source) = norm_source(graph, user, number)?;
    let (operation, index) = operation.normed(kind)?;
    let mut node = graph.nodes[user].clone();
    node.primitive = Primitive::Operation(operation);
    node.inputs[0] = source;
    let weight = graph.nodes[number].inputs[1..].iter().cloned();
    node.inputs.splice(index..index, weight);
    let moves = !node.inputs.iter().any(|edge| graph.is_state(edge));
    (moves && computes(graph, &node, device.device())).then_some(node)
}

/// Kind and source of norm `number`, if node `user` reads it as its first input only, whole, and row by row. The source
/// has the layout in which the user reads the norm.
fn norm_source(graph: &Graph, user: usize, number: usize) -> Option<(Norm, Edge)> {
    let norm = &graph.nodes[number];
    let kind = norm_of(norm)?;
    let (inputs, source) = (&graph.nodes[user].inputs, &norm.inputs[0]);
    let x = &inputs[0];
    let exact = norm.dtype == DType::F32 && graph.dtype(source) == DType::F32;
    let once = x.node == number && inputs.iter().filter(|e| e.node == number).count() == 1;
    let whole = graph.is_whole(x) && norm.shape.last() == x.layout.shape.last();
    let layout = source.layout.reshape(&x.layout.shape)?;
    let source = source.through(layout);
    (exact && once && whole && !graph.is_state(&source)).then_some((kind, source))
}
