//! Attention of tokens that are the only ones of their sequences, with the norms and rotations of queries
//! and keys and with the writes of keys and values.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, WriteRows};
use refrain::rewrite::{Norm, Replacement, computes, norm_of, replace};
use refrain::{DType, Device, Primitive};
use refrain_kernels::attention::DecodeParams;
use refrain_kernels::elementwise::{BinaryOp, ExpressionStep, UnaryOp};

use super::PagedAttention;
use super::decode::JoinedAttention;
use crate::RopeParams;
use crate::rope::Rotation;
use crate::slots::Slots;

/// Makes what stands before attention a part of it, where attention promises single tokens.
pub(super) fn join(graph: Graph, device: &Device) -> Graph {
    let (uses, users) = (graph.use_counts(), graph.users());
    let found = (0..graph.nodes.len())
        .map(|n| joined(&graph, &uses, &users[n], n, device))
        .collect();
    replace(graph, found)
}

/// Queries or keys before their norm and rotation.
#[derive(Clone)]
struct Prepared {
    /// `[T, H, D]`.
    raw: Edge,
    rope: Option<(RopeParams, Edge)>,
    norm: Option<(Norm, Option<Edge>)>,
}

fn joined(graph: &Graph, uses: &[usize], users: &[usize], number: usize, device: &Device) -> Option<Replacement> {
    let node = &graph.nodes[number];
    let PagedAttention(params) = *node.primitive.operation()?;
    if !params.decode {
        return None;
    }
    let [q, keys, values, others @ ..] = &node.inputs[..] else {
        return None;
    };
    let (tokens, sinks) = others.split_at_checked(3)?;
    let mut rows = Vec::new();
    for state in [keys, values] {
        let (state, edge) = write(graph, state, number, tokens, params.page_size)?;
        rows.push((state, edge));
    }
    let [(k_state, k), (v_state, v)] = &rows[..] else {
        return None;
    };
    // Where queries and keys are rotated differently, both stay as they are.
    let mut makers = [q, k].map(|edge| prepared(graph, uses, edge, &tokens[0]));
    if makers[0].rope != makers[1].rope {
        makers = [q, k].map(Prepared::as_it_is);
    }
    let whole = [&makers, &[q, k].map(Prepared::as_it_is)];
    let states = [k_state, v_state].map(Edge::clone);
    let gate = gate(graph, uses, users, number);
    // With a gate, or without it where that does not fit.
    let forms = [gate.as_ref(), None]
        .into_iter()
        .flat_map(|gate| whole.map(|form| (form, gate)));
    forms.into_iter().find_map(|([q, k], gate)| {
        let decode = DecodeParams {
            attention: params,
            rope: q.rope.as_ref().map(|(rope, _)| *rope),
            q_norm: q.norm.as_ref().map(|(norm, _)| *norm),
            k_norm: k.norm.as_ref().map(|(norm, _)| *norm),
            sinks: !sinks.is_empty(),
            gated: gate.is_some(),
        };
        let mut inputs = states.to_vec();
        inputs.extend([&q.raw, &k.raw, v].map(Edge::clone));
        inputs.extend_from_slice(tokens);
        inputs.extend(q.rope.iter().map(|(_, frequencies)| frequencies.clone()));
        let norm_weights = [q, k].into_iter().filter_map(|x| x.norm.as_ref()?.1.clone());
        inputs.extend(norm_weights);
        inputs.extend_from_slice(sinks);
        inputs.extend(gate.map(|(_, edge)| edge.clone()));
        // Where tokens stand may be states: attention reads them where it did.
        let moves = ![&q.raw, &k.raw, v].into_iter().any(|edge| graph.is_state(edge));
        let next = [keys, values].map(|state| ArraySpec {
            shape: state.layout.shape.to_vec(),
            dtype: graph.dtype(state),
        });
        let node = Node {
            further: next.to_vec(),
            ..Node::new(
                Primitive::Operation(Arc::new(JoinedAttention(decode))),
                inputs,
                node.shape.clone(),
                node.dtype,
            )
        };
        (moves && computes(graph, &node, device)).then_some(Replacement {
            node,
            dropped: vec![keys.node, values.node],
            next: vec![(keys.source(), 1), (values.source(), 2)],
            absorbed: gate.map(|(user, _)| *user),
        })
    })
}

/// The node that multiplies what node `number` gives by the sigmoid of a gate, and the gate, if it is there before.
fn gate(graph: &Graph, uses: &[usize], users: &[usize], number: usize) -> Option<(usize, Edge)> {
    let &user = users.first()?;
    let node = &graph.nodes[user];
    let (Primitive::Elementwise(expression), [a, b]) = (&node.primitive, &node.inputs[..]) else {
        return None;
    };
    let (mixed, edge) = if a.node == number { (0, b) } else { (1, a) };
    let step = |step: usize| &expression.steps[step];
    let is_gated = |x: usize, y: usize| {
        *step(x) == ExpressionStep::Input(mixed)
            && matches!(*step(y), ExpressionStep::Unary(UnaryOp::Sigmoid, z) if *step(z) == ExpressionStep::Input(1 - mixed))
    };
    let &ExpressionStep::Binary(BinaryOp::Mul, x, y) = expression.steps.last()? else {
        return None;
    };
    let f32s = expression.inputs == [DType::F32; 2] && graph.nodes[number].dtype == DType::F32;
    let whole = graph.is_whole(&node.inputs[mixed]) && node.shape == graph.nodes[number].shape;
    let fits = (is_gated(x, y) || is_gated(y, x)) && f32s && whole && uses[number] == 1 && edge.node < number;
    fits.then(|| (user, edge.clone()))
}

/// The state before the write that `edge` sees, and the rows written, if they are written where `tokens`
/// (positions, sequences, pages) stand and nothing but attention `reader` sees them before it.
fn write(graph: &Graph, edge: &Edge, reader: usize, tokens: &[Edge], page_size: u32) -> Option<(Edge, Edge)> {
    let node = &graph.nodes[edge.node];
    let (Some(WriteRows), [state, rows, slots]) = (node.primitive.operation(), &node.inputs[..]) else {
        return None;
    };
    let found = &graph.nodes[slots.node];
    let Slots { page_size: n } = *found.primitive.operation()?;
    let placed = n == page_size as usize && found.inputs == tokens && graph.is_whole(slots);
    let between = &graph.nodes[edge.node + 1..reader];
    let unseen = !between.iter().flat_map(|n| &n.inputs).any(|e| e.node == edge.node);
    let once = graph.nodes[reader]
        .inputs
        .iter()
        .filter(|e| e.node == edge.node)
        .count()
        == 1;
    (placed && unseen && once && graph.is_whole(edge)).then(|| (state.clone(), rows.clone()))
}

impl Prepared {
    fn as_it_is(edge: &Edge) -> Prepared {
        Prepared {
            raw: edge.clone(),
            rope: None,
            norm: None,
        }
    }
}

/// What `edge` (queries or keys `[T, H, D]`) is made of: its rotation to `positions`, if there is one, and
/// before that its norm over the heads.
fn prepared(graph: &Graph, uses: &[usize], edge: &Edge, positions: &Edge) -> Prepared {
    let mut prepared = Prepared::as_it_is(edge);
    // Alone and in f32, so that nothing is rounded in between.
    let source = |edge: &Edge| {
        let node = &graph.nodes[edge.node];
        let exact = node.dtype == DType::F32 && node.inputs.first().is_some_and(|e| graph.dtype(e) == DType::F32);
        (uses[edge.node] == 1 && graph.is_whole(edge) && exact).then_some(node)
    };
    if let Some(node) = source(&prepared.raw)
        && let Some(&Rotation(params)) = node.primitive.operation()
        && node.inputs[1] == *positions
    {
        prepared.rope = Some((params, node.inputs[2].clone()));
        prepared.raw = node.inputs[0].clone();
    }
    let shape = edge.layout.shape.clone();
    if let Some(node) = source(&prepared.raw)
        && let Some(norm) = norm_of(node)
        && node.shape.last() == shape.last()
        && let Some(layout) = node.inputs[0].layout.reshape(&shape)
    {
        prepared.norm = Some((norm, node.inputs.get(1).cloned()));
        prepared.raw = node.inputs[0].through(layout);
    }
    prepared
}
