use std::ops::Range;

use refrain_kernels::elementwise::{Expression, ExpressionStep};

use super::canonicalise::sweep;
use crate::graph::{Edge, Graph, Node};
use crate::{Layout, Primitive};

/// Maximum number of inputs of one generated kernel.
const MAX_INPUTS: usize = 8;
/// Maximum number of steps of one generated kernel.
const MAX_STEPS: usize = 64;

/// Fuses elementwise nodes: a node becomes part of its user if that is elementwise, the only user, and over the same
/// elements. Constants and ranges become part of every user.
pub fn fuse(mut graph: Graph) -> Graph {
    graph.nodes.iter_mut().for_each(share_inputs);
    let mut uses = graph.use_counts();
    for number in 0..graph.nodes.len() {
        let mut input = 0;
        while input < graph.nodes[number].inputs.len() {
            match fused(&graph, &uses, number, input) {
                Some(node) => {
                    replace(&mut graph, &mut uses, number, node);
                    // An input that was passed over may have lost its other user.
                    input = 0;
                }
                None => input += 1,
            }
        }
    }
    sweep(graph)
}

/// Merges inputs of an elementwise node that read the same elements.
fn share_inputs(node: &mut Node) {
    let Primitive::Elementwise(expression) = &mut node.primitive else {
        return;
    };
    let mut kept: Vec<usize> = Vec::new();
    let mut slots = Vec::with_capacity(node.inputs.len());
    for (input, edge) in node.inputs.iter().enumerate() {
        let slot = kept.iter().position(|&k| node.inputs[k] == *edge).unwrap_or(kept.len());
        if slot == kept.len() {
            kept.push(input);
        }
        slots.push(slot);
    }
    expression.steps = expression
        .steps
        .iter()
        .map(|step| renumbered(step, |i| i, &slots))
        .collect();
    expression.inputs = kept.iter().map(|&k| expression.inputs[k]).collect();
    node.inputs = kept.iter().map(|&k| node.inputs[k].clone()).collect();
}

/// Replaces node `number` and updates the use counts.
fn replace(graph: &mut Graph, uses: &mut [usize], number: usize, node: Node) {
    node.inputs.iter().for_each(|e| uses[e.node] += 1);
    let mut dropped = vec![std::mem::replace(&mut graph.nodes[number], node).inputs];
    while let Some(inputs) = dropped.pop() {
        for edge in inputs {
            uses[edge.node] -= 1;
            if uses[edge.node] == 0 && matches!(graph.nodes[edge.node].primitive, Primitive::Elementwise(_)) {
                dropped.push(std::mem::take(&mut graph.nodes[edge.node].inputs));
            }
        }
    }
}

/// Node `number` with the source of its input `input` fused into it, if that is possible.
fn fused(graph: &Graph, uses: &[usize], number: usize, input: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let edge = &node.inputs[input];
    let source = &graph.nodes[edge.node];
    let (Primitive::Elementwise(outer), Primitive::Elementwise(inner)) = (&node.primitive, &source.primitive) else {
        return None;
    };
    let whole = edge.layout.is_contiguous() && edge.layout.offset == 0 && edge.layout.count() == source.layout.count();
    let constant = inner.inputs.is_empty() && (whole || !inner.steps.contains(&ExpressionStep::Index));
    let is_overwritten = || {
        source
            .inputs
            .iter()
            .any(|e| is_updated(graph, e, edge.node + 1..number))
    };
    if !constant && (uses[edge.node] != 1 || !whole || is_overwritten()) {
        return None;
    }
    let seen: Vec<Edge> = source
        .inputs
        .iter()
        .map(|e| Some(e.through(e.layout.reshape(&node.shape)?)))
        .collect::<Option<_>>()?;
    let (expression, inputs) = substitute(outer, &node.inputs, input, inner, &seen);
    let fits = inputs.len() <= MAX_INPUTS && expression.steps.len() <= MAX_STEPS;
    fits.then(|| Node {
        layout: Layout::contiguous(&node.shape),
        primitive: Primitive::Elementwise(expression),
        inputs,
        shape: node.shape.clone(),
        dtype: node.dtype,
        extra_results: vec![],
    })
}

/// Whether one of these nodes updates the state that an edge reads.
fn is_updated(graph: &Graph, edge: &Edge, mut nodes: Range<usize>) -> bool {
    let updates = |node: &Node| node.states().any(|state| state.source() == edge.source());
    graph.is_state(edge) && nodes.any(|number| updates(&graph.nodes[number]))
}

/// `outer` with its input `replaced` computed by `inner` from `seen`.
fn substitute(
    outer: &Expression,
    outer_edges: &[Edge],
    replaced: usize,
    inner: &Expression,
    seen: &[Edge],
) -> (Expression, Vec<Edge>) {
    let mut edges: Vec<Edge> = Vec::new();
    let mut dtypes = Vec::new();
    let mut slot = |edge: &Edge, dtype| {
        edges.iter().position(|e| e == edge).unwrap_or_else(|| {
            edges.push(edge.clone());
            dtypes.push(dtype);
            edges.len() - 1
        })
    };
    let outer_slots: Vec<usize> = outer_edges
        .iter()
        .enumerate()
        .map(|(i, e)| {
            if i == replaced {
                usize::MAX
            } else {
                slot(e, outer.inputs[i])
            }
        })
        .collect();
    let inner_slots: Vec<usize> = seen.iter().enumerate().map(|(i, e)| slot(e, inner.inputs[i])).collect();
    let mut steps: Vec<ExpressionStep> = inner.steps.iter().map(|s| renumbered(s, |i| i, &inner_slots)).collect();
    let result = steps.len() - 1;
    let mut at = Vec::with_capacity(outer.steps.len());
    for step in &outer.steps {
        if *step == ExpressionStep::Input(replaced) {
            at.push(result);
            continue;
        }
        steps.push(renumbered(step, |i| at[i], &outer_slots));
        at.push(steps.len() - 1);
    }
    // The last step is the result. If it was the replaced input itself, the result is that of `inner`.
    if at.last() != Some(&(steps.len() - 1)) {
        steps.truncate(result + 1);
    }
    (Expression { inputs: dtypes, steps }, edges)
}

fn renumbered(step: &ExpressionStep, at: impl Fn(usize) -> usize, slots: &[usize]) -> ExpressionStep {
    match *step {
        ExpressionStep::Input(i) => ExpressionStep::Input(slots[i]),
        step => step.renumbered(at),
    }
}
