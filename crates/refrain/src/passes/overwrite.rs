use super::canonicalise::copy_of;
use crate::Layout;
use crate::graph::{Edge, Graph, Node, first_version};
use crate::ops::slice_update::SliceUpdate;

/// Lets updates of values write over the values, in memory of the program. If a value has other users, or is a view, its
/// copy is overwritten. An update that replaces all elements is a copy of the new ones.
pub fn overwrite(graph: Graph) -> Graph {
    if !graph.nodes.iter().any(|node| node.primitive.has_in_place()) {
        return graph;
    }
    let uses = graph.use_counts();
    let mut nodes: Vec<Node> = Vec::with_capacity(graph.nodes.len() + 1);
    // The new number of each node.
    let mut renamed = Vec::with_capacity(graph.nodes.len());
    for mut node in graph.nodes {
        let is_free = node.primitive.has_in_place() && uses[node.inputs[0].node] == 1;
        node.inputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
        if node.primitive.has_in_place() {
            node = overwriting(&mut nodes, node, is_free);
        }
        renamed.push(nodes.len());
        nodes.push(node);
    }
    let mut outputs = graph.outputs;
    outputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
    Graph { nodes, outputs }
}

/// The update `node` as one that writes over its first input, or over a copy of it, which is added to `nodes`. `is_free`:
/// nothing else uses the input.
fn overwriting(nodes: &mut Vec<Node>, mut node: Node, is_free: bool) -> Node {
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
    let in_place = node.primitive.in_place().expect("it has one");
    Node {
        primitive: in_place,
        ..node
    }
}
