//! A node in the place of several, some of which change states.

use std::collections::HashMap;

use crate::graph::{Edge, Graph, Node};

/// What takes the place of a node.
pub struct Replacement {
    /// The node.
    pub node: Node,
    /// Other nodes whose work it does: nothing stays that needs them but for the results that are named next.
    pub dropped: Vec<usize>,
    /// What these made, next versions of states say, by node and result, and which of its results those are now.
    pub next: Vec<((usize, usize), usize)>,
    /// A later node whose result it gives.
    pub absorbed: Option<usize>,
}

/// The graph with what was found in the place of the nodes of these numbers.
pub fn replace(graph: Graph, mut found: Vec<Option<Replacement>>) -> Graph {
    if found.iter().all(Option::is_none) {
        return graph;
    }
    let count = graph.nodes.len();
    let mut dropped = vec![false; count];
    let mut absorbed_by: Vec<Option<usize>> = vec![None; count];
    for (number, replacement) in found.iter().enumerate() {
        let Some(replacement) = replacement else { continue };
        replacement.dropped.iter().for_each(|&n| dropped[n] = true);
        if let Some(absorbed) = replacement.absorbed {
            absorbed_by[absorbed] = Some(number);
        }
    }
    let mut renamed = vec![usize::MAX; count];
    // Results of nodes that were dropped: the node and the result that they are now.
    let mut moved: HashMap<(usize, usize), (usize, usize)> = HashMap::new();
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
        if let Some(replacement) = found[number].take() {
            node = replacement.node;
            let here = replacement.next.into_iter();
            moved.extend(here.map(|(before, result)| (before, (nodes.len(), result))));
        }
        rename(&mut node.inputs, &renamed, &moved);
        nodes.push(node);
    }
    let mut outputs = graph.outputs;
    rename(&mut outputs, &renamed, &moved);
    Graph { nodes, outputs }
}

fn rename(edges: &mut [Edge], renamed: &[usize], moved: &HashMap<(usize, usize), (usize, usize)>) {
    for edge in edges {
        match moved.get(&edge.source()) {
            Some(&(node, result)) => (edge.node, edge.result) = (node, result),
            None => edge.node = renamed[edge.node],
        }
    }
}
