//! Rewrite that fuses Gated DeltaNet over few tokens: convolution, activation, norms of queries and keys, the delta
//! rule, the output norm and the gate.
//!
//! Programs keep their states in three ways. They update them, at once or by later nodes ([`deferred`]), or they compute
//! the next ones ([`GatedDeltaFrom`]). These hold a window of inputs, which they join with the new inputs, convolve, and
//! keep the end of ([`window`]).

mod deferred;
mod window;

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, Operation};
use refrain::rewrite::{Norm, Replacement, computes, norm_of, replace, same_elements};
use refrain::{DType, Device, Layout, Primitive};
use refrain_kernels::RecurrenceForm;
use refrain_kernels::delta_net::DeltaNetParams;
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, UnaryOp};

use self::deferred::Updates;
use super::delta_net::{FusedDeltaNet, FusedDeltaNetFrom};
use super::gated_delta::{GatedDelta, GatedDeltaFrom};

/// Maximum number of tokens: for more, separate kernels that process all tokens in parallel are faster.
const MAX_TOKENS: usize = 8;
/// Maximum number of tokens of as many sequences, which the fused kernel processes in parallel, too.
const MAX_SEQUENCES: usize = 64;

/// Fuses the nodes between the projections of each delta net into one node in place of its gate, and deferred updates of
/// its states into another.
pub(super) fn fuse(graph: Graph, device: &Device) -> Graph {
    let uses = graph.use_counts();
    let mut replacements: Vec<Option<Replacement>> = graph.nodes.iter().map(|_| None).collect();
    for number in 0..graph.nodes.len() {
        for (number, replacement) in fused(&graph, &uses, number, device).unwrap_or_default() {
            replacements[number] = Some(replacement);
        }
    }
    replace(graph, replacements)
}

/// Returns the fused node in place of gate `number`, if the nodes before it match, and the one that makes deferred
/// updates.
fn fused(graph: &Graph, uses: &[usize], number: usize, device: &Device) -> Option<Vec<(usize, Replacement)>> {
    let gate = &graph.nodes[number];
    let [z, normed] = gated(gate)?;
    // The output norm.
    let norm = single(graph, uses, normed.node)?;
    let norm_params = norm_of(norm)?;
    let rule = DeltaRule::of(graph, &norm.inputs[0])?;
    if !graph.is_whole(normed) {
        return None;
    }
    // Queries and keys come from the same rows as values.
    let [(q_eps, q_scale, q), (k_eps, k_scale, k)] = [
        unit_norm(graph, uses, &rule.rows[0], rule.readers())?,
        unit_norm(graph, uses, &rule.rows[1], rule.readers())?,
    ];
    let convolved = convolved(graph, uses, [&q, &k, &rule.rows[2]], rule.readers())?;
    let conv = match rule.states {
        StateUse::Updated | StateUse::Deferred => window::updating(graph, &convolved, &rule)?,
        StateUse::Computed => window::computing(graph, &convolved, &rule)?,
    };
    let updates = match rule.states {
        StateUse::Deferred => Some(Updates::of(graph, number, &conv, &rule)?),
        StateUse::Updated | StateUse::Computed => None,
    };
    // The node takes the place of the gate: nothing before it may read what comes of the states, but for the
    // convolution, which it computes.
    let before = (0..=number).filter(|&n| n != convolved.node);
    let read: Vec<(usize, usize)> = before
        .flat_map(|n| graph.nodes[n].inputs.iter().map(Edge::source))
        .collect();
    let is_unread = |of: &(usize, usize)| !read.contains(of);
    // Another window may be kept as it was.
    let window = conv
        .next
        .filter(|(of, _)| rule.states == StateUse::Updated || is_unread(of));
    let state = ((rule.out.node, 1), 2);
    let next: Vec<((usize, usize), usize)> = match rule.states {
        StateUse::Deferred => vec![],
        StateUse::Updated | StateUse::Computed => window.into_iter().chain([state]).collect(),
    };
    let unread = next.iter().all(|(of, _)| is_unread(of));
    if q_eps != k_eps || !unread || reads(graph, &rule.out) != 1 {
        return None;
    }
    let [tokens, heads, value_dim] = rule.sizes;
    let columns = heads * value_dim;
    let z = z.through(z.layout.reshape(&[tokens, columns])?);
    let mut inputs = vec![conv.x, conv.weights];
    inputs.extend(rule.gates);
    inputs.push(z);
    inputs.extend(rule.places);
    let states = [conv.state, rule.state];
    inputs.extend(states.clone());
    inputs.extend(norm.inputs[1..].iter().cloned());
    let params = DeltaNetParams {
        eps: q_eps,
        scales: [q_scale, k_scale],
        norm: norm_params,
    };
    let update = match updates {
        Some(updates) => Some(updates.replacement(graph, params, inputs.clone(), device)?),
        None => None,
    };
    let operation = Primitive::Operation(rule.states.operation(params, rule.is_decode, conv.is_joined));
    let node = Node {
        extra_results: next_states(graph, rule.states, &states, conv.is_joined),
        ..Node::new(operation, inputs, vec![tokens, columns], gate.dtype)
    };
    if !computes(graph, &node, device) {
        return None;
    }
    let replacement = Replacement {
        node,
        dropped: next.iter().map(|((node, _), _)| *node).collect(),
        next,
        absorbed: None,
    };
    Some([(number, replacement)].into_iter().chain(update).collect())
}

/// Returns the shapes and types of the next window and state, if the fused node has them.
fn next_states(graph: &Graph, state_use: StateUse, states: &[Edge; 2], is_joined: bool) -> Vec<ArraySpec> {
    if state_use == StateUse::Deferred {
        return vec![];
    }
    let mut next_states = states
        .each_ref()
        .map(|state| ArraySpec::new(&state.layout.shape, graph.dtype(state)));
    next_states[0].shape[1] += usize::from(is_joined);
    next_states.to_vec()
}

/// What becomes of the states.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateUse {
    /// The nodes update them.
    Updated,
    /// Later nodes update them.
    Deferred,
    /// The nodes compute the next ones.
    Computed,
}

impl StateUse {
    /// Returns the fused operation.
    fn operation(self, params: DeltaNetParams, one_token: bool, is_joined: bool) -> Arc<dyn Operation> {
        let form = match self {
            StateUse::Updated => RecurrenceForm::Full,
            StateUse::Deferred => RecurrenceForm::ResultsOnly,
            StateUse::Computed => return Arc::new(FusedDeltaNetFrom { params, is_joined }),
        };
        Arc::new(FusedDeltaNet {
            params,
            form,
            one_token,
        })
    }
}

/// The gated delta rule over few tokens.
struct DeltaRule {
    /// Its whole output.
    out: Edge,
    /// Queries, keys and values.
    rows: [Edge; 3],
    /// Decay and beta.
    gates: [Edge; 2],
    /// Positions and sequences.
    places: [Edge; 2],
    state: Edge,
    states: StateUse,
    /// Whether each sequence has at most one token.
    is_decode: bool,
    /// Tokens, heads, and values of a head.
    sizes: [usize; 3],
}

impl DeltaRule {
    fn of(graph: &Graph, out: &Edge) -> Option<DeltaRule> {
        let delta = exact(graph, out.node)?;
        let rule = delta.primitive.operation::<GatedDelta>();
        let states = match rule.map(|rule| rule.form) {
            Some(RecurrenceForm::Full) => StateUse::Updated,
            Some(RecurrenceForm::ResultsOnly) => StateUse::Deferred,
            Some(RecurrenceForm::StateOnly) => return None,
            None => {
                delta.primitive.operation::<GatedDeltaFrom>()?;
                StateUse::Computed
            }
        };
        let is_decode = rule.is_some_and(|rule| rule.is_decode);
        let most = if is_decode { MAX_SEQUENCES } else { MAX_TOKENS };
        let [q, k, v, decay, beta, positions, sequences, state] = &delta.inputs[..] else {
            return None;
        };
        let &[tokens, heads, value_dim] = &delta.shape[..] else {
            return None;
        };
        let fits = out.result == 0 && tokens <= most && graph.is_whole(out);
        fits.then(|| DeltaRule {
            out: out.clone(),
            rows: [q, k, v].map(Edge::clone),
            gates: [decay, beta].map(Edge::clone),
            places: [positions, sequences].map(Edge::clone),
            state: state.clone(),
            states,
            is_decode,
            sizes: [tokens, heads, value_dim],
        })
    }

    /// Number of nodes that read queries, keys and values: with deferred updates, another one.
    fn readers(&self) -> usize {
        1 + usize::from(self.states == StateUse::Deferred)
    }
}

/// Number of inputs and graph outputs that read the same result.
fn reads(graph: &Graph, edge: &Edge) -> usize {
    let edges = graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs);
    edges.filter(|other| other.source() == edge.source()).count()
}

/// Returns the convolution's output, if queries, keys and values are slices of it after activation. `readers` nodes read
/// the values.
fn convolved(graph: &Graph, uses: &[usize], [q, k, v]: [&Edge; 3], readers: usize) -> Option<Edge> {
    let activated = &graph.nodes[v.node];
    let (Primitive::Elementwise(activation), [convolved]) = (&activated.primitive, &activated.inputs[..]) else {
        return None;
    };
    let &channels = activated.shape.last()?;
    let keys = q.layout.shape[1] * q.layout.shape[2];
    let is_slice = |edge: &Edge, start: usize| {
        let &[tokens, heads, each] = &edge.layout.shape[..] else {
            return false;
        };
        let expected = Layout {
            shape: vec![tokens, heads, each].into(),
            strides: vec![channels, each, 1].into(),
            offset: start,
        };
        edge.node == v.node && same_elements(&edge.layout, &expected)
    };
    let sliced = is_slice(q, 0) && is_slice(k, keys) && is_slice(v, 2 * keys) && uses[v.node] == 2 + readers;
    let silu = is_silu(activation, activation.steps.len() - 1, 0);
    let fits = sliced && silu && graph.is_whole(convolved) && activated.dtype == DType::F32;
    fits.then(|| convolved.clone())
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

/// Matches x / √(mean(x²) + ε) · factor of an edge `[T, H, D]` with `readers`; returns ε, the factor and x.
fn unit_norm(graph: &Graph, uses: &[usize], edge: &Edge, readers: usize) -> Option<(f32, f32, Edge)> {
    let scaled = exact(graph, edge.node).filter(|_| uses[edge.node] == readers)?;
    let (Primitive::Elementwise(expression), [source]) = (&scaled.primitive, &scaled.inputs[..]) else {
        return None;
    };
    let norm = single(graph, uses, source.node)?;
    let Norm { eps, weighted: false } = norm_of(norm)? else {
        return None;
    };
    let raw = &norm.inputs[0];
    let raw = raw.through(raw.layout.reshape(&edge.layout.shape)?);
    let factor = factor(expression, expression.steps.len() - 1)?;
    let whole = graph.is_whole(edge) && graph.is_whole(source) && expression.inputs == [DType::F32];
    let over_heads = norm.shape.last() == edge.layout.shape.last() && edge.layout.rank() == 3;
    (whole && over_heads && graph.dtype(&raw) == DType::F32).then_some((eps, factor, raw))
}

/// Returns the factor by which a step multiplies the only input.
fn factor(expression: &Expression, number: usize) -> Option<f32> {
    match expression.steps[number] {
        ExpressionStep::Input(0) => Some(1.0),
        ExpressionStep::Binary(BinaryOp::Mul, a, b) => {
            let constant = |step: usize| expression.float(step);
            let (value, rest) = constant(a).map(|v| (v, b)).or_else(|| constant(b).map(|v| (v, a)))?;
            Some(factor(expression, rest)? * value)
        }
        _ => None,
    }
}
