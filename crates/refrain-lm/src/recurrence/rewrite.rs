//! A gated delta net over few tokens: convolution, activation, norms of queries and keys, the delta rule, the norm
//! of what it recalls, and the gate.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::ArraySpec;
use refrain::rewrite::{Norm, Replacement, computes, norm_of, replace, same_places};
use refrain::{DType, Device, Layout, Primitive};
use refrain_kernels::delta_net::DeltaNetParams;
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};

use super::causal_conv::CausalConv;
use super::delta_net::JoinedDeltaNet;
use super::gated_delta::GatedDelta;

/// The most tokens: of more, pieces that go over all tokens at once are faster.
const MOST_TOKENS: usize = 8;

/// Makes what stands between the projections of a delta net one node, in the place of its gate.
pub(super) fn join(graph: Graph, device: &Device) -> Graph {
    let uses = graph.use_counts();
    let found = (0..graph.nodes.len())
        .map(|n| joined(&graph, &uses, n, device))
        .collect();
    replace(graph, found)
}

fn joined(graph: &Graph, uses: &[usize], number: usize, device: &Device) -> Option<Replacement> {
    let gate = &graph.nodes[number];
    let [z, normed] = gated(gate)?;
    // The norm of what is recalled.
    let norm = single(graph, uses, normed.node)?;
    let kind = norm_of(norm)?;
    let recalled = &norm.inputs[0];
    let delta = exact(graph, recalled.node)?;
    let (Some(GatedDelta), [q, k, v, decay, beta, positions, sequences, memory]) =
        (delta.primitive.operation(), &delta.inputs[..])
    else {
        return None;
    };
    let &[tokens, heads, value_dim] = &delta.shape[..] else {
        return None;
    };
    if tokens > MOST_TOKENS || !graph.is_whole(recalled) || !graph.is_whole(normed) {
        return None;
    }
    // Queries and keys come from the same rows as values.
    let (q_eps, q_scale, q) = unit(graph, uses, q)?;
    let (k_eps, k_scale, k) = unit(graph, uses, k)?;
    let conv = convolution(graph, uses, [&q, &k, v])?;
    let (convolved, [x, weights, conv_positions, conv_sequences, window]) = conv;
    if q_eps != k_eps || positions != conv_positions || sequences != conv_sequences {
        return None;
    }
    let makers = [(window, convolved), (memory, recalled)];
    // Nothing else looks at the states before they are changed, nor at what they become before it is there.
    let next = makers.map(|(_, by)| (by.node, 1));
    let before = graph.nodes[..=number].iter().flat_map(|node| &node.inputs);
    let unseen = !before.map(Edge::source).any(|source| next.contains(&source));
    let edges = || graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs);
    let seen = |edge: &Edge| edges().filter(|other| other.source() == edge.source()).count();
    let alone = makers.into_iter().all(|(state, by)| seen(state) == 1 && seen(by) == 1);
    let columns = heads * value_dim;
    let z = z.through(z.layout.reshape(&[tokens, columns])?);
    let states = [window.clone(), memory.clone()];
    let mut inputs: Vec<Edge> = [x, weights, decay, beta, &z, positions, sequences]
        .map(Edge::clone)
        .to_vec();
    inputs.extend(states);
    inputs.extend(norm.inputs[1..].iter().cloned());
    let params = DeltaNetParams {
        eps: q_eps,
        scales: [q_scale, k_scale],
        norm: kind,
    };
    let made = makers.map(|(state, _)| ArraySpec {
        shape: state.layout.shape.to_vec(),
        dtype: graph.dtype(state),
    });
    let node = Node {
        further: made.to_vec(),
        ..Node::new(
            Primitive::Operation(Arc::new(JoinedDeltaNet(params))),
            inputs,
            vec![tokens, columns],
            gate.dtype,
        )
    };
    (alone && unseen && computes(graph, &node, device)).then(|| Replacement {
        node,
        dropped: makers.map(|(_, by)| by.node).to_vec(),
        next: next.into_iter().zip([1, 2]).collect(),
        absorbed: None,
    })
}

/// The activated convolution that queries, keys and values are parts of, and what it reads.
fn convolution<'g>(graph: &'g Graph, uses: &[usize], [q, k, v]: [&Edge; 3]) -> Option<(&'g Edge, [&'g Edge; 5])> {
    let mixed = &graph.nodes[v.node];
    let (Primitive::Elementwise(activation), [convolved]) = (&mixed.primitive, &mixed.inputs[..]) else {
        return None;
    };
    let conv = exact(graph, convolved.node)?;
    let (Some(CausalConv), [x, weights, positions, sequences, window]) = (conv.primitive.operation(), &conv.inputs[..])
    else {
        return None;
    };
    let &[tokens, channels] = &x.layout.shape[..] else {
        return None;
    };
    let keys = q.layout.shape[1] * q.layout.shape[2];
    let sees = |edge: &Edge, start: usize| {
        let each = edge.layout.shape[2];
        let wanted = Layout {
            shape: vec![tokens, edge.layout.shape[1], each].into(),
            strides: vec![channels, each, 1].into(),
            offset: start,
        };
        edge.node == v.node && same_places(&edge.layout, &wanted)
    };
    let placed = sees(q, 0) && sees(k, keys) && sees(v, 2 * keys) && uses[v.node] == 3;
    let silu = is_silu(activation, activation.steps.len() - 1, 0);
    let fits = placed && silu && graph.is_whole(convolved) && mixed.dtype == DType::F32;
    fits.then_some((convolved, [x, weights, positions, sequences, window]))
}

/// A node in f32 that one other uses.
fn single<'g>(graph: &'g Graph, uses: &[usize], number: usize) -> Option<&'g Node> {
    let node = &graph.nodes[number];
    (uses[number] == 1 && node.dtype == DType::F32).then_some(node)
}

/// A node in f32.
fn exact(graph: &Graph, number: usize) -> Option<&Node> {
    Some(&graph.nodes[number]).filter(|node| node.dtype == DType::F32)
}

/// z and x of silu(z) · x.
fn gated(node: &Node) -> Option<[&Edge; 2]> {
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    let [DType::F32, DType::F32] = expression.inputs[..] else {
        return None;
    };
    let Some(&ExpressionStep::Binary(BinaryOp::Mul, a, b)) = expression.steps.last() else {
        return None;
    };
    let found = [[a, b], [b, a]].into_iter().find_map(|[plain, silu]| {
        let &ExpressionStep::Input(x) = &expression.steps[plain] else {
            return None;
        };
        let z = 1 - x;
        is_silu(expression, silu, z).then_some([z, x])
    })?;
    (node.dtype == DType::F32).then(|| found.map(|input| &node.inputs[input]))
}

/// Whether step `number` is x · sigmoid(x) of an input.
fn is_silu(expression: &Expression, number: usize, input: usize) -> bool {
    let is_input = |step: usize| expression.steps[step] == ExpressionStep::Input(input);
    let is_sigmoid =
        |step: usize| matches!(expression.steps[step], ExpressionStep::Unary(UnaryOp::Sigmoid, x) if is_input(x));
    let &ExpressionStep::Binary(BinaryOp::Mul, a, b) = &expression.steps[number] else {
        return false;
    };
    let f32s = expression.inputs[input] == DType::F32;
    f32s && ((is_input(a) && is_sigmoid(b)) || (is_input(b) && is_sigmoid(a)))
}

/// ε, the factor, and x of x / √(mean(x²) + ε) · factor.
fn unit(graph: &Graph, uses: &[usize], edge: &Edge) -> Option<(f32, f32, Edge)> {
    let scaled = single(graph, uses, edge.node)?;
    let (Primitive::Elementwise(expression), [source]) = (&scaled.primitive, &scaled.inputs[..]) else {
        return None;
    };
    let norm = single(graph, uses, source.node)?;
    let Norm { eps, weighted: false } = norm_of(norm)? else {
        return None;
    };
    let raw = &norm.inputs[0];
    let factor = factor(expression, expression.steps.len() - 1)?;
    let whole = graph.is_whole(edge) && graph.is_whole(source) && expression.inputs == [DType::F32];
    (whole && graph.dtype(raw) == DType::F32 && raw.layout.rank() == 3).then(|| (eps, factor, raw.clone()))
}

/// By what a step multiplies the one input.
fn factor(expression: &Expression, number: usize) -> Option<f32> {
    match expression.steps[number] {
        ExpressionStep::Input(0) => Some(1.0),
        ExpressionStep::Binary(BinaryOp::Mul, a, b) => {
            let constant = |step: usize| match expression.steps[step] {
                ExpressionStep::Constant {
                    value: Scalar::F32(value),
                    dtype: DType::F32,
                } => Some(value),
                _ => None,
            };
            let (value, rest) = constant(a).map(|v| (v, b)).or_else(|| constant(b).map(|v| (v, a)))?;
            Some(factor(expression, rest)? * value)
        }
        _ => None,
    }
}
