//! A node in the place of several, some of which change states.

use crate::graph::{Edge, Graph, Node};
use crate::{Layout, Primitive};

/// What takes the place of a node.
pub(super) struct Replacement {
    pub node: Node,
    /// Nodes that change states, which it does itself.
    pub dropped: Vec<usize>,
    /// Nodes that were the next versions of states, and which of its inputs these states are.
    pub next: Vec<(usize, usize)>,
    /// A later node whose result it gives.
    pub absorbed: Option<usize>,
}

/// The graph with what was found in the place of the nodes of these numbers.
pub(super) fn replace(graph: Graph, mut found: Vec<Option<Replacement>>) -> Graph {
    if found.iter().all(Option::is_none) {
        return graph;
    }
    let count = graph.nodes.len();
    let mut dropped = vec![false; count];
    let mut absorbed_by: Vec<Option<usize>> = vec![None; count];
    for (number, replacement) in found.iter().enumerate() {
        let Some(replacement) = replacement else { continue };
        let next = replacement.next.iter().map(|(version, _)| version);
        next.chain(&replacement.dropped).for_each(|&n| dropped[n] = true);
        if let Some(absorbed) = replacement.absorbed {
            absorbed_by[absorbed] = Some(number);
        }
    }
    let mut renamed = vec![usize::MAX; count];
    let mut nodes: Vec<Node> = Vec::new();
    for (number, mut node) in graph.nodes.into_iter().enumerate() {
        if dropped[number] {
            continue;
        }
        if let Some(by) = absorbed_by[number] {
            renamed[number] = renamed[by];
            continue;
        }
        renamed[number] = nodes.len();
        let replacement = found[number].take();
        let next = match replacement {
            Some(replacement) => {
                node = replacement.node;
                replacement.next
            }
            None => Vec::new(),
        };
        rename(&mut node.inputs, &renamed);
        let by = Edge {
            node: nodes.len(),
            layout: Layout::contiguous(&node.shape),
        };
        let states: Vec<Edge> = next.iter().map(|&(_, input)| node.inputs[input].clone()).collect();
        nodes.push(node);
        // What the versions were is now the states as the node leaves them.
        for ((version, _), state) in next.into_iter().zip(states) {
            renamed[version] = nodes.len();
            let (shape, dtype) = (state.layout.shape.clone(), nodes[state.node].dtype);
            nodes.push(Node::new(Primitive::Updated, vec![state, by.clone()], shape, dtype));
        }
    }
    let mut outputs = graph.outputs;
    rename(&mut outputs, &renamed);
    Graph { nodes, outputs }
}

fn rename(edges: &mut [Edge], renamed: &[usize]) {
    edges.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
}
