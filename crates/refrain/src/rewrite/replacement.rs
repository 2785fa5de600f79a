//! Replaces several nodes, some of which may update states, by one.

use std::collections::HashMap;

use crate::graph::{Edge, Graph, Node};

/// The replacement of a node.
pub struct Replacement {
    /// The new node.
    pub node: Node,
    /// Other nodes whose work it does. Remaining nodes may use only those of their results that `next` lists.
    pub dropped: Vec<usize>,
    /// Results of dropped nodes, such as next versions of states, by node and result, and the result of the new node
    /// that replaces each.
    pub next: Vec<((usize, usize), usize)>,
    /// A later node whose result it computes.
    pub absorbed: Option<usize>,
}

/// The graph with the replacements `replacements` of the nodes with these indices.
pub fn replace(graph: Graph, mut replacements: Vec<Option<Replacement>>) -> Graph {
    if replacements.iter().all(Option::is_none) {
        return graph;
    }
    let count = graph.nodes.len();
    let mut dropped = vec![false; count];
    let mut absorbed_by: Vec<Option<usize>> = vec![None; count];
    for (number, replacement) in replacements.iter().enumerate() {
        let Some(replacement) = replacement else { continue };
        replacement.dropped.iter().for_each(|&n| dropped[n] = true);
        if let Some(absorbed) = replacement.absorbed {
            absorbed_by[absorbed] = Some(number);
        }
    }
    let mut renamed = vec![usize::MAX; count];
    // Results of dropped nodes, with the node and result that replace them.
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
        if let Some(replacement) = replacements[number].take() {
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
