use refrain_kernels::elementwise::Expression;

use crate::graph::{Edge, Graph, Node};
use crate::{Layout, Primitive};

/// Removes the nodes that only see elements differently: their users see the source through a layout
/// instead. Where a reshape cannot be seen without a copy, the copy becomes a node.
pub fn canonicalise(graph: Graph) -> Graph {
    let mut nodes: Vec<Node> = Vec::new();
    // What stands for each old node: one of the new graph, or what is seen through a view.
    let mut stands: Vec<Stand> = Vec::new();
    let translate = |stands: &[Stand], edge: &Edge| match &stands[edge.node] {
        Stand::Node(node) => Edge {
            node: *node,
            ..edge.clone()
        },
        Stand::View(view) => view.clone(),
    };
    for node in graph.nodes {
        let inputs: Vec<Edge> = node.inputs.iter().map(|e| translate(&stands, e)).collect();
        let stand = match &node.primitive {
            Primitive::Permute { axes } => Stand::View(inputs[0].through(inputs[0].layout.permute(axes))),
            Primitive::Slice { start, stop, step } => {
                Stand::View(inputs[0].through(inputs[0].layout.slice(start, stop, step)))
            }
            Primitive::Broadcast => {
                let view = inputs[0]
                    .layout
                    .broadcast(&node.shape)
                    .expect("checked when the array was made");
                Stand::View(inputs[0].through(view))
            }
            Primitive::Reshape => match inputs[0].layout.reshape(&node.shape) {
                Some(view) => Stand::View(inputs[0].through(view)),
                None => {
                    let shape = inputs[0].layout.shape.clone();
                    nodes.push(copy_of(inputs[0].clone(), shape.to_vec(), node.dtype));
                    Stand::View(Edge::first(nodes.len() - 1, Layout::contiguous(&node.shape)))
                }
            },
            _ => {
                let inputs = if node.primitive.updates().is_empty() {
                    inputs
                } else {
                    apart(&mut nodes, &node.primitive, inputs)
                };
                nodes.push(Node { inputs, ..node });
                Stand::Node(nodes.len() - 1)
            }
        };
        stands.push(stand);
    }
    let outputs = graph.outputs.iter().map(|e| translate(&stands, e)).collect();
    Graph { nodes, outputs }
}

/// Inputs of an update, with a copy of those that lie in a state that it changes: it does so in any order.
fn apart(nodes: &mut Vec<Node>, update: &Primitive, mut inputs: Vec<Edge>) -> Vec<Edge> {
    let updated = update.updates();
    let states: Vec<Option<usize>> = updated.iter().map(|&n| slot_of(nodes, &inputs[n])).collect();
    for (number, edge) in inputs.iter_mut().enumerate() {
        let slot = slot_of(nodes, edge);
        if slot.is_some() && states.contains(&slot) && !updated.contains(&number) {
            let (shape, dtype) = (edge.layout.shape.clone(), nodes[edge.node].dtype_of(edge.result));
            nodes.push(copy_of(edge.clone(), shape.to_vec(), dtype));
            *edge = Edge::first(nodes.len() - 1, Layout::contiguous(&shape));
        }
    }
    inputs
}

/// The slot in which lies what an edge sees, where it is known before memory is placed.
fn slot_of(nodes: &[Node], edge: &Edge) -> Option<usize> {
    let mut edge = edge;
    loop {
        let node = &nodes[edge.node];
        match &node.primitive {
            Primitive::Stored { slot, .. } => return Some(*slot),
            _ => edge = node.updated(edge.result)?,
        }
    }
}

/// What stands for a node of the graph before.
enum Stand {
    Node(usize),
    View(Edge),
}

/// A node that copies what an edge sees into gapless memory.
pub(super) fn copy_of(edge: Edge, shape: Vec<usize>, dtype: crate::DType) -> Node {
    Node::new(
        Primitive::Elementwise(Expression::cast(dtype, dtype)),
        vec![edge],
        shape,
        dtype,
    )
}

/// Drops nodes that nothing needs (updates of states are needed).
pub(super) fn sweep(graph: Graph) -> Graph {
    let mut needed = vec![false; graph.nodes.len()];
    graph.outputs.iter().for_each(|e| needed[e.node] = true);
    for number in (0..graph.nodes.len()).rev() {
        needed[number] |= !graph.nodes[number].primitive.updates().is_empty();
        if needed[number] {
            graph.nodes[number].inputs.iter().for_each(|e| needed[e.node] = true);
        }
    }
    if needed.iter().all(|needed| *needed) {
        return graph;
    }
    let Graph { mut nodes, mut outputs } = graph;
    let mut renamed = vec![usize::MAX; nodes.len()];
    let (mut number, mut kept) = (0, 0);
    nodes.retain_mut(|node| {
        let keep = needed[number];
        if keep {
            node.inputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
            renamed[number] = kept;
            kept += 1;
        }
        number += 1;
        keep
    });
    outputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
    Graph { nodes, outputs }
}
