use super::canonicalise::copy_of;
use crate::graph::{Edge, Graph, Node, first_version};
use crate::ops::slice_update::SliceUpdate;
use crate::{Layout, Primitive};

/// Lets updates of values write over the values, in memory of the program. If a value has other users, or is a view, its
/// copy is overwritten. An update that replaces all elements is a copy of the new ones.
pub fn overwrite(graph: Graph) -> Graph {
    let uses = graph.use_counts();
    let mut nodes: Vec<Node> = Vec::with_capacity(graph.nodes.len() + 1);
    // The new number of each node.
    let mut renamed = Vec::with_capacity(graph.nodes.len());
    for mut node in graph.nodes {
        let is_free = node.inputs.first().is_some_and(|edge| uses[edge.node] == 1);
        node.inputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
        if let Some(in_place) = node.primitive.in_place() {
            node = overwriting(&mut nodes, node, in_place, is_free);
        }
        renamed.push(nodes.len());
        nodes.push(node);
    }
    let mut outputs = graph.outputs;
    outputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
    Graph { nodes, outputs }
}

/// The update `node` as one that writes over its first input by `in_place`, or over a copy of it, which is added to
/// `nodes`. `is_free`: nothing else uses the input.
fn overwriting(nodes: &mut Vec<Node>, mut node: Node, in_place: Primitive, is_free: bool) -> Node {
    if let Some(update) = node.primitive.operation::<SliceUpdate>()
        && update.replaces_all(&node.shape)
    {
        return copy_of(node.inputs.swap_remove(1), node.shape, node.dtype);
    }
    let base = &node.inputs[0];
    let is_whole = base.layout == Layout::contiguous(&node.shape)
        && base.layout.count() == nodes[base.node].layout_of(base.result).count();
    let is_computed = !nodes[first_version(nodes, base).node].primitive.is_leaf();
    if !(is_free && is_whole && is_computed) {
        nodes.push(copy_of(base.clone(), node.shape.clone(), node.dtype));
        node.inputs[0] = Edge::first(nodes.len() - 1, Layout::contiguous(&node.shape));
    }
    Node {
        primitive: in_place,
        ..node
    }
}
