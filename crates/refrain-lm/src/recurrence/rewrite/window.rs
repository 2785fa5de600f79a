//! The convolution of a delta net and the window of inputs that it continues from.

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::Values;
use refrain::rewrite::same_elements;
use refrain::{DType, Primitive};
use refrain_kernels::RecurrenceForm;
use refrain_kernels::elementwise::{self, ExpressionStep};

use super::{DeltaRule, StateUse, exact, reads};
use crate::recurrence::causal_conv::CausalConv;
use crate::recurrence::depthwise_conv::DepthwiseConv;

/// A convolution with the window of inputs before it.
pub(super) struct Window {
    /// `[T, C]`.
    pub x: Edge,
    pub weights: Edge,
    /// `[S, W−1, C]`.
    pub state: Edge,
    /// The node and result that is the next window, if one is kept, and the fused node's result that replaces it.
    pub next: Option<((usize, usize), usize)>,
    /// Whether the next window is the whole input of the convolution.
    pub is_joined: bool,
}

/// The convolution and the delta rule update their states, or later nodes do.
pub(super) fn updating(graph: &Graph, convolved: &Edge, rule: &DeltaRule) -> Option<Window> {
    let conv = exact(graph, convolved.node)?;
    let form = match rule.states {
        StateUse::Deferred => RecurrenceForm::ResultsOnly,
        StateUse::Updated | StateUse::Computed => RecurrenceForm::Full,
    };
    let (Some(CausalConv(found)), [x, weights, positions, sequences, state]) =
        (conv.primitive.operation(), &conv.inputs[..])
    else {
        return None;
    };
    // Nothing else may read the states before the update.
    let readers = [rule.readers(); 2];
    let alone = [state, &rule.state].map(|state| reads(graph, state)) == readers && reads(graph, convolved) == 1;
    let same_places = rule.places.iter().eq([positions, sequences]);
    (*found == form && alone && same_places).then(|| Window {
        x: x.clone(),
        weights: weights.clone(),
        state: state.clone(),
        next: (form == RecurrenceForm::Full).then_some(((convolved.node, 1), 1)),
        is_joined: false,
    })
}

/// Each sequence continues from the window of its last inputs, which are joined with the new ones.
pub(super) fn computing(graph: &Graph, convolved: &Edge, rule: &DeltaRule) -> Option<Window> {
    let conv = exact(graph, convolved.node)?;
    let (Some(DepthwiseConv), [joined, weights]) = (conv.primitive.operation(), &conv.inputs[..]) else {
        return None;
    };
    let join = &graph.nodes[joined.node];
    let [held, x] = &join.inputs[..] else { return None };
    let (&[sequences, window, channels], &[_, each, _]) = (&held.layout.shape[..], &x.layout.shape[..]) else {
        return None;
    };
    let [tokens, ..] = rule.sizes;
    let is_join = join.primitive.name() == "concatenate"
        && graph.is_whole(joined)
        && join.shape == [sequences, window + each, channels]
        && window + 1 == weights.layout.shape[1]
        && sequences * each == tokens
        && rule.state.layout.shape[0] == sequences;
    if !is_join || !continues(graph, rule, each) {
        return None;
    }
    let state = as_stored(graph, held);
    // The node reads its inputs later, in place of the gate.
    if [x, &state, &rule.state].iter().any(|edge| graph.is_state(edge)) {
        return None;
    }
    let whole = (each == 1).then(|| kept_whole(graph, joined, convolved.node, graph.dtype(&state)));
    let whole = whole.flatten();
    // Rounded inputs are read as they were before: only the window keeps them rounded.
    let x = unrounded(graph, x);
    Some(Window {
        x: x.through(x.layout.reshape(&[tokens, channels])?),
        weights: weights.clone(),
        is_joined: whole.is_some(),
        next: whole
            .or_else(|| kept_end(graph, joined, each, graph.dtype(&state)))
            .map(|kept| ((kept, 0), 1)),
        state,
    })
}

/// The node that keeps the convolution's whole input, if nothing but that node and the convolution reads it. A program
/// that slices its window when it needs it keeps that.
fn kept_whole(graph: &Graph, joined: &Edge, conv: usize, dtype: DType) -> Option<usize> {
    let reads = |edge: &&Edge| edge.source() == joined.source();
    let mut readers = (0..graph.nodes.len()).filter(|&n| n != conv && graph.nodes[n].inputs.iter().any(|e| reads(&e)));
    let outputs = graph.outputs.iter().filter(reads).count();
    match (readers.next(), readers.next(), outputs) {
        (None, None, 1..) => (graph.dtype(joined) == dtype).then_some(joined.node),
        (Some(reader), None, 0) => {
            let node = &graph.nodes[reader];
            let is_copy = is_conversion(node) && graph.is_whole(&node.inputs[0]) && node.layout.is_contiguous();
            (is_copy && node.dtype == dtype).then_some(reader)
        }
        _ => None,
    }
}

/// The node that copies the end of the convolution's input, after `each` tokens.
fn kept_end(graph: &Graph, joined: &Edge, each: usize, dtype: DType) -> Option<usize> {
    let join = &graph.nodes[joined.node];
    let (mut start, step) = (vec![0; join.shape.len()], vec![1; join.shape.len()]);
    start[1] = each;
    let end = join.layout.slice(&start, &join.shape, &step);
    let keeps = |node: &Node| {
        let [edge] = &node.inputs[..] else { return false };
        let is_end = edge.source() == joined.source() && same_elements(&edge.layout, &end);
        is_end && is_conversion(node) && node.dtype == dtype && node.layout.is_contiguous()
    };
    (joined.node..graph.nodes.len()).find(|&n| keeps(&graph.nodes[n]))
}

/// Whether every token continues its sequence, and each sequence has `each` tokens.
fn continues(graph: &Graph, rule: &DeltaRule, each: usize) -> bool {
    let [positions, sequences] = &rule.places;
    let [tokens, ..] = rule.sizes;
    let in_order = Values::U32((0..tokens).map(|token| (token / each) as u32).collect());
    let are_later = match constant(graph, positions) {
        Some(Values::I32(positions)) => positions.into_iter().all(|position| position > 0),
        _ => false,
    };
    are_later && constant(graph, sequences) == Some(in_order)
}

/// The values of an edge, if they do not depend on any input.
fn constant(graph: &Graph, edge: &Edge) -> Option<Values> {
    let node = &graph.nodes[edge.node];
    let (Primitive::Elementwise(expression), []) = (&node.primitive, &node.inputs[..]) else {
        return None;
    };
    let all = elementwise::reference(expression, &[], node.layout.count());
    let (mut signed, mut unsigned) = (vec![], vec![]);
    edge.layout.for_each(|at| match &all {
        Values::I32(values) => signed.push(values[at]),
        Values::U32(values) => unsigned.push(values[at]),
        Values::F32(_) => {}
    });
    match all {
        Values::I32(_) => Some(Values::I32(signed)),
        Values::U32(_) => Some(Values::U32(unsigned)),
        Values::F32(_) => None,
    }
}

/// The stored window that an edge reads as f32: the kernel reads it in its own dtype, where it lies.
fn as_stored(graph: &Graph, edge: &Edge) -> Edge {
    let node = &graph.nodes[edge.node];
    match &node.inputs[..] {
        [stored]
            if is_conversion(node)
                && node.dtype == DType::F32
                && graph.is_whole(edge)
                && stored.layout.shape == edge.layout.shape
                && stored.layout.strides[1..] == edge.layout.strides[1..]
                && !graph.is_state(stored) =>
        {
            stored.clone()
        }
        _ => edge.clone(),
    }
}

/// What an edge reads, before it was rounded.
fn unrounded(graph: &Graph, edge: &Edge) -> Edge {
    let node = &graph.nodes[edge.node];
    match &node.inputs[..] {
        [source] if is_conversion(node) && graph.is_whole(edge) && graph.is_whole(source) => {
            source.through(edge.layout.clone())
        }
        _ => edge.clone(),
    }
}

/// Whether a node only converts floats.
fn is_conversion(node: &Node) -> bool {
    let Primitive::Elementwise(expression) = &node.primitive else {
        return false;
    };
    let are_floats = expression
        .dtypes()
        .is_ok_and(|dtypes| dtypes.iter().all(|dtype| dtype.is_float()));
    let is_cast = |(number, step): (usize, &ExpressionStep)| match *step {
        ExpressionStep::Input(0) => number == 0,
        ExpressionStep::Cast(before, _) => before + 1 == number,
        _ => false,
    };
    are_floats && expression.steps.iter().enumerate().all(is_cast)
}
