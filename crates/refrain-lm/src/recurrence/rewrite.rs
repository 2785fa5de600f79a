//! Rewrite that fuses Gated DeltaNet over few tokens: convolution, activation, norms of queries and keys, the delta
//! rule, the output norm and the gate.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::ArraySpec;
use refrain::rewrite::{Norm, Replacement, computes, norm_of, replace, same_elements};
use refrain::{DType, Device, Layout, Primitive};
use refrain_kernels::delta_net::DeltaNetParams;
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};

use super::causal_conv::CausalConv;
use super::delta_net::FusedDeltaNet;
use super::gated_delta::GatedDelta;

/// Maximum number of tokens: for more, separate kernels that process all tokens in parallel are faster.
const MAX_TOKENS: usize = 8;

/// Fuses the nodes between the projections of each delta net into one node in place of its gate.
pub(super) fn fuse(graph: Graph, device: &Device) -> Graph {
    let uses = graph.use_counts();
    let replacements = (0..graph.nodes.len())
        .map(|n| fused(&graph, &uses, n, device))
        .collect();
    replace(graph, replacements)
}

/// Returns the fused node in place of gate `number`, if the nodes before it match.
fn fused(graph: &Graph, uses: &[usize], number: usize, device: &Device) -> Option<Replacement> {
    let gate = &graph.nodes[number];
    let [z, normed] = gated(gate)?;
    // The output norm.
    let norm = single(graph, uses, normed.node)?;
    let norm_params = norm_of(norm)?;
    let delta_out = &norm.inputs[0];
    let delta = exact(graph, delta_out.node)?;
    let (Some(GatedDelta), [q, k, v, decay, beta, positions, sequences, delta_state]) =
        (delta.primitive.operation(), &delta.inputs[..])
    else {
        return None;
    };
    let &[tokens, heads, value_dim] = &delta.shape[..] else {
        return None;
    };
    if tokens > MAX_TOKENS || !graph.is_whole(delta_out) || !graph.is_whole(normed) {
        return None;
    }
    // Queries and keys come from the same rows as values.
    let (q_eps, q_scale, q) = unit_norm(graph, uses, q)?;
    let (k_eps, k_scale, k) = unit_norm(graph, uses, k)?;
    let conv = convolution(graph, uses, [&q, &k, v])?;
    let (convolved, [x, weights, conv_positions, conv_sequences, conv_state]) = conv;
    if q_eps != k_eps || positions != conv_positions || sequences != conv_sequences {
        return None;
    }
    let updates = [(conv_state, convolved), (delta_state, delta_out)];
    // Nothing else may read the states before the update, nor their next versions before the fused node.
    let next = updates.map(|(_, by)| (by.node, 1));
    let before = graph.nodes[..=number].iter().flat_map(|node| &node.inputs);
    let unread = !before.map(Edge::source).any(|source| next.contains(&source));
    let edges = || graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs);
    let reads = |edge: &Edge| edges().filter(|other| other.source() == edge.source()).count();
    let alone = updates
        .into_iter()
        .all(|(state, by)| reads(state) == 1 && reads(by) == 1);
    let columns = heads * value_dim;
    let z = z.through(z.layout.reshape(&[tokens, columns])?);
    let states = [conv_state.clone(), delta_state.clone()];
    let mut inputs: Vec<Edge> = [x, weights, decay, beta, &z, positions, sequences]
        .map(Edge::clone)
        .to_vec();
    inputs.extend(states);
    inputs.extend(norm.inputs[1..].iter().cloned());
    let params = DeltaNetParams {
        eps: q_eps,
        scales: [q_scale, k_scale],
        norm: norm_params,
    };
    let next_states = updates.map(|(state, _)| ArraySpec {
        shape: state.layout.shape.to_vec(),
        dtype: graph.dtype(state),
    });
    let node = Node {
        extra_results: next_states.to_vec(),
        ..Node::new(
            Primitive::Operation(Arc::new(FusedDeltaNet(params))),
            inputs,
            vec![tokens, columns],
            gate.dtype,
        )
    };
    (alone && unread && computes(graph, &node, device)).then(|| Replacement {
        node,
        dropped: updates.map(|(_, by)| by.node).to_vec(),
        next: next.into_iter().zip([1, 2]).collect(),
        absorbed: None,
    })
}

/// Returns the convolution whose activated output queries, keys and values are slices of, and its inputs.
fn convolution<'g>(graph: &'g Graph, uses: &[usize], [q, k, v]: [&Edge; 3]) -> Option<(&'g Edge, [&'g Edge; 5])> {
    let activated = &graph.nodes[v.node];
    let (Primitive::Elementwise(activation), [convolved]) = (&activated.primitive, &activated.inputs[..]) else {
        return None;
    };
    let conv = exact(graph, convolved.node)?;
    let (Some(CausalConv), [x, weights, positions, sequences, conv_state]) =
        (conv.primitive.operation(), &conv.inputs[..])
    else {
        return None;
    };
    let &[tokens, channels] = &x.layout.shape[..] else {
        return None;
    };
    let keys = q.layout.shape[1] * q.layout.shape[2];
    let is_slice = |edge: &Edge, start: usize| {
        let each = edge.layout.shape[2];
        let expected = Layout {
            shape: vec![tokens, edge.layout.shape[1], each].into(),
            strides: vec![channels, each, 1].into(),
            offset: start,
        };
        edge.node == v.node && same_elements(&edge.layout, &expected)
    };
    let sliced = is_slice(q, 0) && is_slice(k, keys) && is_slice(v, 2 * keys) && uses[v.node] == 3;
    let silu = is_silu(activation, activation.steps.len() - 1, 0);
    let fits = sliced && silu && graph.is_whole(convolved) && activated.dtype == DType::F32;
    fits.then_some((convolved, [x, weights, positions, sequences, conv_state]))
}

/// Returns node `number` if it is f32 and has exactly one use.
fn single<'g>(graph: &'g Graph, uses: &[usize], number: usize) -> Option<&'g Node> {
    let node = &graph.nodes[number];
    (uses[number] == 1 && node.dtype == DType::F32).then_some(node)
}

/// Returns node `number` if it is f32.
fn exact(graph: &Graph, number: usize) -> Option<&Node> {
    Some(&graph.nodes[number]).filter(|node| node.dtype == DType::F32)
}

/// Matches silu(z) · x; returns z and x.
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
    let matched = [[a, b], [b, a]].into_iter().find_map(|[plain, silu]| {
        let &ExpressionStep::Input(x) = &expression.steps[plain] else {
            return None;
        };
        let z = 1 - x;
        is_silu(expression, silu, z).then_some([z, x])
    })?;
    (node.dtype == DType::F32).then(|| matched.map(|input| &node.inputs[input]))
}

/// Whether step `number` is silu(x) = x · sigmoid(x) of input `input`.
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

/// Matches x / √(mean(x²) + ε) · factor; returns ε, the factor and x.
fn unit_norm(graph: &Graph, uses: &[usize], edge: &Edge) -> Option<(f32, f32, Edge)> {
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

/// Returns the factor by which a step multiplies the only input.
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
