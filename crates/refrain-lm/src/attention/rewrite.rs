//! Attention of tokens that are the only ones of their sequences, with the norms and rotations of queries
//! and keys and with the writes of keys and values; of others, all these in one node before it.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, Operation, WriteRows};
use refrain::rewrite::{Norm, Replacement, computes, norm_of, replace};
use refrain::{DType, Device, Primitive};
use refrain_kernels::attention::{DecodeParams, HeadPreparation};
use refrain_kernels::elementwise::{BinaryOp, ExpressionStep, UnaryOp};

use super::PagedAttention;
use super::decode::JoinedAttention;
use super::prepare::AttentionPreparation;
use crate::rope::Rotation;
use crate::slots::Slots;
use crate::{AttentionParams, RopeParams};

/// Makes what stands before attention a part of it, where attention promises single tokens and can; else one node.
pub(super) fn join(graph: Graph, device: &Device) -> Graph {
    let (uses, users) = (graph.use_counts(), graph.users());
    let mut found: Vec<Option<Replacement>> = graph.nodes.iter().map(|_| None).collect();
    for number in 0..graph.nodes.len() {
        let Some(before) = BeforeAttention::of(&graph, &uses, number) else {
            continue;
        };
        if let Some(joined) = before.with_attention(&graph, &uses, &users[number], device) {
            found[number] = Some(joined);
        } else if let Some((place, joined)) = before.apart(&graph, device) {
            found[place] = Some(joined);
        }
    }
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

/// A write of rows into a state.
struct RowsWritten {
    /// The state before.
    state: Edge,
    rows: Edge,
    slots: Edge,
}

/// Attention over keys and values that are written just before it.
struct BeforeAttention<'g> {
    params: AttentionParams,
    number: usize,
    /// Queries, keys and values as it reads them.
    read: [&'g Edge; 3],
    /// Positions, sequences and pages.
    tokens: &'g [Edge],
    sinks: &'g [Edge],
    /// Queries and keys.
    makers: [Prepared; 2],
    /// Keys and values.
    writes: [RowsWritten; 2],
}

impl<'g> BeforeAttention<'g> {
    /// What stands before node `number`, if that is attention.
    fn of(graph: &'g Graph, uses: &[usize], number: usize) -> Option<BeforeAttention<'g>> {
        let node = &graph.nodes[number];
        let PagedAttention(params) = *node.primitive.operation()?;
        let [q, keys, values, others @ ..] = &node.inputs[..] else {
            return None;
        };
        let (tokens, sinks) = others.split_at_checked(3)?;
        let write = |state: &Edge| write(graph, state, number, tokens, params.page_size);
        let writes = [write(keys)?, write(values)?];
        // Where queries and keys are rotated differently, both stay as they are.
        let mut makers = [q, &writes[0].rows].map(|edge| prepared(graph, uses, edge, &tokens[0]));
        if makers[0].rope != makers[1].rope {
            makers = [q, &writes[0].rows].map(Prepared::as_it_is);
        }
        Some(BeforeAttention {
            params,
            number,
            read: [q, keys, values],
            tokens,
            sinks,
            makers,
            writes,
        })
    }

    /// All of it in the place of attention.
    fn with_attention(&self, graph: &Graph, uses: &[usize], users: &[usize], device: &Device) -> Option<Replacement> {
        if !self.params.decode {
            return None;
        }
        let [q, keys, values] = self.read;
        let whole = [&self.makers, &[q, &self.writes[0].rows].map(Prepared::as_it_is)];
        let gate = gate(graph, uses, users, self.number);
        // With a gate, or without it where that does not fit.
        let forms = [gate.as_ref(), None]
            .into_iter()
            .flat_map(|gate| whole.map(|makers| (makers, gate)));
        forms.into_iter().find_map(|(makers, gate)| {
            let decode = DecodeParams {
                attention: self.params,
                heads: preparation(makers),
                sinks: !self.sinks.is_empty(),
                gated: gate.is_some(),
            };
            let optional = optional(makers).into_iter().chain(self.sinks.iter().cloned());
            let optional = optional.chain(gate.map(|(_, edge)| edge.clone()));
            let inputs = self.inputs(makers, self.tokens.iter().cloned().chain(optional));
            let attention = &graph.nodes[self.number];
            let result = (attention.shape.clone(), attention.dtype);
            let node = self.node(graph, device, JoinedAttention(decode), inputs, result)?;
            Some(Replacement {
                node,
                dropped: vec![keys.node, values.node],
                next: vec![(keys.source(), 1), (values.source(), 2)],
                absorbed: gate.map(|(user, _)| *user),
            })
        })
    }

    /// One node that attention reads from, in the place of the last of those that it stands for.
    fn apart(&self, graph: &Graph, device: &Device) -> Option<(usize, Replacement)> {
        let [q, keys, values] = self.read;
        let [before, _] = &self.makers;
        // Queries that attention reads as they are would be copied.
        if before.rope.is_none() && before.norm.is_none() {
            return None;
        }
        let [key_slots, value_slots] = self.writes.each_ref().map(|write| &write.slots);
        if key_slots != value_slots {
            return None;
        }
        let places = [key_slots, &self.tokens[0]].map(Edge::clone);
        let inputs = self.inputs(&self.makers, places.into_iter().chain(optional(&self.makers)));
        let result = (q.layout.shape.to_vec(), graph.dtype(q));
        let operation = AttentionPreparation(preparation(&self.makers));
        let node = self.node(graph, device, operation, inputs, result)?;
        let mut dropped = vec![q.node, keys.node, values.node];
        let place = *dropped.iter().max()?;
        dropped.retain(|number| *number != place);
        let next = vec![(q.source(), 0), (keys.source(), 1), (values.source(), 2)];
        let replacement = Replacement {
            node,
            dropped,
            next,
            absorbed: None,
        };
        Some((place, replacement))
    }

    /// Both states, queries, keys and values, and what is behind them.
    fn inputs(&self, makers: &[Prepared; 2], others: impl Iterator<Item = Edge>) -> Vec<Edge> {
        let [keys, values] = &self.writes;
        let [q, k] = makers.each_ref().map(|maker| &maker.raw);
        let inputs = [&keys.state, &values.state, q, k, &values.rows];
        inputs.into_iter().cloned().chain(others).collect()
    }

    /// A node that updates both states, if the device computes it.
    fn node(
        &self,
        graph: &Graph,
        device: &Device,
        operation: impl Operation,
        inputs: Vec<Edge>,
        (shape, dtype): (Vec<usize>, DType),
    ) -> Option<Node> {
        // Where tokens stand may be states: attention reads them where it did.
        let moves = !inputs[2..5].iter().any(|edge| graph.is_state(edge));
        let [_, keys, values] = self.read;
        let next = [keys, values].map(|state| ArraySpec {
            shape: state.layout.shape.to_vec(),
            dtype: graph.dtype(state),
        });
        let node = Node {
            further: next.to_vec(),
            ..Node::new(Primitive::Operation(Arc::new(operation)), inputs, shape, dtype)
        };
        (moves && computes(graph, &node, device)).then_some(node)
    }
}

fn preparation([q, k]: &[Prepared; 2]) -> HeadPreparation {
    HeadPreparation {
        rope: q.rope.as_ref().map(|(rope, _)| *rope),
        q_norm: q.norm.as_ref().map(|(norm, _)| *norm),
        k_norm: k.norm.as_ref().map(|(norm, _)| *norm),
    }
}

/// Frequencies, and the weights of the norms, where there are any.
fn optional(makers: &[Prepared; 2]) -> Vec<Edge> {
    let frequencies = makers[0].rope.iter().map(|(_, frequencies)| frequencies.clone());
    let weights = makers.iter().filter_map(|maker| maker.norm.as_ref()?.1.clone());
    frequencies.chain(weights).collect()
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

/// The write that `edge` sees the state behind, if rows are written where `tokens` (positions, sequences, pages) stand and
/// nothing but attention `reader` sees them before it.
fn write(graph: &Graph, edge: &Edge, reader: usize, tokens: &[Edge], page_size: u32) -> Option<RowsWritten> {
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
    (placed && unseen && once && graph.is_whole(edge)).then(|| RowsWritten {
        state: state.clone(),
        rows: rows.clone(),
        slots: slots.clone(),
    })
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
