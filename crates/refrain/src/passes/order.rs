use super::choose::{Chosen, Kernels};
use crate::graph::Graph;

/// How many steps of the program are looked at together: results of steps taken early are kept longer.
const WINDOW: usize = 32;

/// A graph whose nodes stand in the order in which they are computed.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// Leaves first, then level by level.
    pub graph: Graph,
    /// For each node, how it is computed.
    pub kernels: Vec<Kernels>,
    /// For each node, its level: nodes of one level do not wait for each other. Leaves have level 0.
    pub levels: Vec<usize>,
}

/// Brings nodes that do not depend on each other together, so that they need no barrier between them:
/// each level takes what is ready among the next steps of the program.
pub fn order(chosen: Chosen) -> Ordered {
    let Chosen { graph, kernels } = chosen;
    let needs = dependencies(&graph);
    let (mut sequence, computed): (Vec<usize>, Vec<usize>) =
        (0..graph.nodes.len()).partition(|&n| graph.nodes[n].primitive.is_leaf());
    let mut level_of: Vec<Option<usize>> = graph.nodes.iter().map(|n| n.primitive.is_leaf().then_some(0)).collect();
    let mut rest = computed.into_iter();
    let mut window: Vec<usize> = rest.by_ref().take(WINDOW).collect();
    let mut level = 0;
    // The first of the window only needs what stands before it, so every level takes at least one.
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

/// For each node, the nodes that must be done before it: its inputs and, before an update of a state,
/// whatever reads the version that is updated.
fn dependencies(graph: &Graph) -> Vec<Vec<usize>> {
    let mut needs: Vec<Vec<usize>> = graph
        .nodes
        .iter()
        .map(|n| n.inputs.iter().map(|e| e.node).collect())
        .collect();
    let mut readers: Vec<Vec<(usize, usize)>> = vec![vec![]; graph.nodes.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        for &updated in node.primitive.updates() {
            let state = &node.inputs[updated];
            let before = readers[state.node].iter().filter(|(result, _)| *result == state.result);
            needs[number].extend(before.map(|(_, reader)| reader));
        }
        node.inputs
            .iter()
            .for_each(|e| readers[e.node].push((e.result, number)));
    }
    needs
}
