use refrain_kernels::elementwise::Expression;

use crate::graph::{Edge, Graph, Node};
use crate::{Layout, Primitive};

/// Removes the nodes that only see elements differently: their users see the source through a layout
/// instead. Where a reshape cannot be seen without a copy, the copy becomes a node.
pub fn canonicalise(graph: Graph) -> Graph {
    let mut nodes: Vec<Node> = Vec::new();
    // What stands for each old node: a node of the new graph, seen through a layout if it was a view.
    let mut stands: Vec<(usize, Option<Layout>)> = Vec::new();
    let translate = |stands: &[(usize, Option<Layout>)], edge: &Edge| match &stands[edge.node] {
        (node, None) => Edge {
            node: *node,
            layout: edge.layout.clone(),
        },
        (node, Some(view)) => Edge {
            node: *node,
            layout: view.clone(),
        },
    };
    for node in graph.nodes {
        let inputs: Vec<Edge> = node.inputs.iter().map(|e| translate(&stands, e)).collect();
        let stand = match &node.primitive {
            Primitive::Permute { axes } => (inputs[0].node, Some(inputs[0].layout.permute(axes))),
            Primitive::Slice { start, stop, step } => (inputs[0].node, Some(inputs[0].layout.slice(start, stop, step))),
            Primitive::Broadcast => {
                let view = inputs[0]
                    .layout
                    .broadcast(&node.shape)
                    .expect("checked when the array was made");
                (inputs[0].node, Some(view))
            }
            Primitive::Reshape => match inputs[0].layout.reshape(&node.shape) {
                Some(view) => (inputs[0].node, Some(view)),
                None => {
                    let shape = inputs[0].layout.shape.clone();
                    nodes.push(copy_of(inputs[0].clone(), shape, node.dtype));
                    (nodes.len() - 1, Some(Layout::contiguous(&node.shape)))
                }
            },
            _ => {
                let inputs = match node.primitive {
                    Primitive::WriteRows => apart(&mut nodes, inputs),
                    _ => inputs,
                };
                nodes.push(Node { inputs, ..node });
                (nodes.len() - 1, None)
            }
        };
        stands.push(stand);
    }
    let outputs = graph.outputs.iter().map(|e| translate(&stands, e)).collect();
    Graph { nodes, outputs }
}

/// Inputs of an update, with a copy of those that lie in the state itself: rows are written in any order.
fn apart(nodes: &mut Vec<Node>, mut inputs: Vec<Edge>) -> Vec<Edge> {
    let state = memory_of(nodes, inputs[0].node);
    for edge in &mut inputs[1..] {
        if memory_of(nodes, edge.node) == state {
            let (shape, dtype) = (edge.layout.shape.clone(), nodes[edge.node].dtype);
            nodes.push(copy_of(edge.clone(), shape.clone(), dtype));
            *edge = Edge {
                node: nodes.len() - 1,
                layout: Layout::contiguous(&shape),
            };
        }
    }
    inputs
}

/// The slot in which a node's result lies, where it is known before memory is placed.
fn memory_of(nodes: &[Node], mut number: usize) -> Option<usize> {
    loop {
        match &nodes[number].primitive {
            Primitive::Stored { slot, .. } => return Some(*slot),
            next if next.is_next_version() => number = nodes[number].inputs[0].node,
            _ => return None,
        }
    }
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
