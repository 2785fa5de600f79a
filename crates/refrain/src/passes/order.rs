use super::choose::Chosen;
use crate::graph::Graph;
use crate::operation::Kernels;

/// Number of program steps considered at a time. A larger window would keep results of early steps alive for longer.
const WINDOW: usize = 32;

/// A graph with its nodes in the order in which they are computed.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// Leaves first, then level by level.
    pub graph: Graph,
    /// The kernels of each node.
    pub kernels: Vec<Kernels>,
    /// The level of each node. Nodes of one level are independent. Leaves have level 0.
    pub levels: Vec<usize>,
}

/// Reorders nodes into levels of independent nodes, which need no barrier between them. Each level takes the nodes that
/// are ready among the next steps of the program.
pub fn order(chosen: Chosen) -> Ordered {
    let Chosen { graph, kernels } = chosen;
    let needs = dependencies(&graph);
    let (mut sequence, computed): (Vec<usize>, Vec<usize>) =
        (0..graph.nodes.len()).partition(|&n| graph.nodes[n].primitive.is_leaf());
    let mut level_of: Vec<Option<usize>> = graph.nodes.iter().map(|n| n.primitive.is_leaf().then_some(0)).collect();
    let mut rest = computed.into_iter();
    let mut window: Vec<usize> = rest.by_ref().take(WINDOW).collect();
    let mut level = 0;
    // The first node of the window only needs nodes before it, so every level takes at least one.
    while !window.is_empty() {
        level += 1;
        let is_ready = |n: &usize| needs[*n].iter().all(|&need| level_of[need].is_some());
        let (ready, waiting): (Vec<usize>, Vec<usize>) = window.into_iter().partition(is_ready);
        ready.iter().for_each(|&n| level_of[n] = Some(level));
        sequence.extend(ready);
        window = waiting;
        window.extend(rest.by_ref().take(WINDOW - window.len()));
    }
    let levels = sequence
        .iter()
        .map(|&n| level_of[n].expect("every node was taken"))
        .collect();
    let mut kernels: Vec<_> = kernels.into_iter().map(Some).collect();
    let taken = sequence.iter().map(|&n| kernels[n].take().expect("each node once"));
    Ordered {
        kernels: taken.collect(),
        graph: graph.rearranged(&sequence),
        levels,
    }
}

/// For each node, the nodes that must complete before it: its inputs and, for an update of a state, the readers of the
/// version that it overwrites.
fn dependencies(graph: &Graph) -> Vec<Vec<usize>> {
    let mut needs: Vec<Vec<usize>> = graph
        .nodes
        .iter()
        .map(|n| n.inputs.iter().map(|e| e.node).collect())
        .collect();
    let mut readers: Vec<Vec<(usize, usize)>> = vec![vec![]; graph.nodes.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        for state in node.states() {
            let before = readers[state.node].iter().filter(|(result, _)| *result == state.result);
            needs[number].extend(before.map(|(_, reader)| reader));
        }
        node.inputs
            .iter()
            .for_each(|e| readers[e.node].push((e.result, number)));
    }
    needs
}
