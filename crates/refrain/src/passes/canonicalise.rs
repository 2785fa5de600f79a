use refrain_kernels::elementwise::Expression;

use crate::graph::{Edge, Graph, Node, first_version};
use crate::{Layout, Primitive};

/// Maximum number of elements of an output that repeats a constant in memory of its shape. What reads larger ones mostly
/// computes element by element, and needs one.
const MAX_FILLED: usize = 1 << 16;

/// Removes view nodes: their users read the source through a layout instead. If a reshape is not a layout of its
/// source, it becomes a copy. So does an output that repeats a constant, unless it is large: programs that read it, as a
/// norm reads its weight, need memory of its shape, and would copy it each time.
pub fn canonicalise(graph: Graph) -> Graph {
    let mut nodes: Vec<Node> = Vec::new();
    // The replacement of each old node.
    let mut replacements: Vec<Replacement> = Vec::new();
    let translate = |replacements: &[Replacement], edge: &Edge| match &replacements[edge.node] {
        Replacement::Node(node) => Edge {
            node: *node,
            ..edge.clone()
        },
        Replacement::View(view) => view.clone(),
    };
    for node in graph.nodes {
        let inputs: Vec<Edge> = node.inputs.iter().map(|e| translate(&replacements, e)).collect();
        let replacement = match &node.primitive {
            Primitive::Permute { axes } => Replacement::View(inputs[0].through(inputs[0].layout.permute(axes))),
            Primitive::Slice(bounds) => Replacement::View(inputs[0].through(bounds.of(&inputs[0].layout))),
            Primitive::Broadcast => {
                let view = inputs[0]
                    .layout
                    .broadcast(&node.shape)
                    .expect("checked when the array was made");
                Replacement::View(inputs[0].through(view))
            }
            Primitive::Reshape => match inputs[0].layout.reshape(&node.shape) {
                Some(view) => Replacement::View(inputs[0].through(view)),
                None => {
                    let copy = copied(&mut nodes, &inputs[0]);
                    Replacement::View(copy.through(Layout::contiguous(&node.shape)))
                }
            },
            _ => {
                let inputs = if node.primitive.updates().is_empty() {
                    inputs
                } else {
                    copy_overlapping_inputs(&mut nodes, &node.primitive, inputs)
                };
                nodes.push(Node { inputs, ..node });
                Replacement::Node(nodes.len() - 1)
            }
        };
        replacements.push(replacement);
    }
    let mut outputs: Vec<Edge> = graph.outputs.iter().map(|e| translate(&replacements, e)).collect();
    for edge in &mut outputs {
        let is_small = edge.layout.count() <= MAX_FILLED;
        if is_small && is_constant(&nodes[edge.node]) && !edge.layout.is_contiguous() {
            *edge = copied(&mut nodes, edge);
        }
    }
    Graph { nodes, outputs }
}

/// Whether a node makes a number from nothing.
fn is_constant(node: &Node) -> bool {
    node.inputs.is_empty() && node.shape.is_empty() && matches!(node.primitive, Primitive::Elementwise(_))
}

/// The inputs of an update. Inputs that read a state being updated are copied first, because an update writes in any
/// order.
fn copy_overlapping_inputs(nodes: &mut Vec<Node>, update: &Primitive, mut inputs: Vec<Edge>) -> Vec<Edge> {
    let updated = update.updates();
    let states: Vec<Option<usize>> = updated.iter().map(|&n| slot_of(nodes, &inputs[n])).collect();
    for (number, edge) in inputs.iter_mut().enumerate() {
        let slot = slot_of(nodes, edge);
        if slot.is_some() && states.contains(&slot) && !updated.contains(&number) {
            *edge = copied(nodes, edge);
        }
    }
    inputs
}

/// The slot of the memory that an edge reads, if it is a leaf's.
fn slot_of(nodes: &[Node], edge: &Edge) -> Option<usize> {
    match nodes[first_version(nodes, edge).node].primitive {
        Primitive::Stored { slot, .. } => Some(slot),
        _ => None,
    }
}

/// Whether a node updates the memory of a leaf.
fn updates_leaf(graph: &Graph, number: usize) -> bool {
    let mut states = graph.nodes[number].states();
    states.any(|edge| graph.nodes[first_version(&graph.nodes, edge).node].primitive.is_leaf())
}

/// What replaces a node of the old graph.
enum Replacement {
    Node(usize),
    View(Edge),
}

/// Adds a node that copies what an edge reads into contiguous memory, and returns the edge that reads all of it.
fn copied(nodes: &mut Vec<Node>, edge: &Edge) -> Edge {
    let (shape, dtype) = (&edge.layout.shape, nodes[edge.node].dtype_of(edge.result));
    nodes.push(copy_of(edge.clone(), shape.to_vec(), dtype));
    Edge::first(nodes.len() - 1, Layout::contiguous(shape))
}

/// A node that copies what an edge reads into contiguous memory.
pub(super) fn copy_of(edge: Edge, shape: Vec<usize>, dtype: crate::DType) -> Node {
    Node::new(
        Primitive::Elementwise(Expression::cast(dtype, dtype)),
        vec![edge],
        shape,
        dtype,
    )
}

/// Removes nodes that nothing needs. Updates of states are always needed, those of values if something reads them.
pub(super) fn sweep(graph: Graph) -> Graph {
    let mut needed = vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|e| needed[e.node] = true);
    for number in (0..graph.nodes.len()).rev() {
        needed[number] |= updates_leaf(&graph, number);
        if needed[number] {
            graph.nodes[number].inputs.iter().for_each(|e| needed[e.node] = true);
        }
    }
    if needed.iter().all(|needed| *needed) {
        return graph;
    }
    let Graph { mut nodes, mut outputs } = graph;
    let mut new_indices = vec![usize::MAX; nodes.len()];
    let (mut number, mut kept) = (0, 0);
    nodes.retain_mut(|node| {
        let keep = needed[number];
        if keep {
            node.inputs
                .iter_mut()
                .for_each(|edge| edge.node = new_indices[edge.node]);
            new_indices[number] = kept;
            kept += 1;
        }
        number += 1;
        keep
    });
    outputs.iter_mut().for_each(|edge| edge.node = new_indices[edge.node]);
    Graph { nodes, outputs }
}
