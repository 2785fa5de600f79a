//! Rewrite that fuses norms, RoPE and cache writes with decode attention, or, for many tokens per sequence, into one
//! preparation node before attention.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, Operation, WriteRows};
use refrain::rewrite::{Norm, Replacement, computes, norm_of, replace};
use refrain::{DType, Device, Primitive};
use refrain_kernels::attention::{BlockFormat, DecodeParams, HeadPreparation};
use refrain_kernels::elementwise::{BinaryOp, ExpressionStep, UnaryOp};

use super::PagedAttention;
use super::blocks::StoreBlocks;
use super::decode::FusedAttention;
use super::heads;
use super::prepare::AttentionPreparation;
use crate::rope::Rope;
use crate::slots::Slots;
use crate::{AttentionParams, RopeParams};

/// Fuses the nodes before each attention with it if it is decode attention and the device supports it, else into one
/// node.
pub(super) fn fuse(graph: Graph, device: &Device) -> Graph {
    let (uses, users) = (graph.use_counts(), graph.users());
    let mut replacements: Vec<Option<Replacement>> = graph.nodes.iter().map(|_| None).collect();
    for number in 0..graph.nodes.len() {
        let Some(prologue) = AttentionPrologue::of(&graph, &uses, number) else {
            continue;
        };
        if let Some(fused) = prologue.with_attention(&graph, &uses, &users[number], device) {
            replacements[number] = Some(fused);
        } else if let Some((last, fused)) = prologue.preparation_node(&graph, device) {
            replacements[last] = Some(fused);
        }
    }
    heads::fuse(replace(graph, replacements), device)
}

/// Queries or keys before norm and RoPE.
#[derive(Clone)]
struct HeadSource {
    /// The input of norm and RoPE, `[T, H, D]`.
    raw: Edge,
    /// RoPE and its frequencies.
    rope: Option<(RopeParams, Edge)>,
    /// The norm and its weight.
    norm: Option<(Norm, Option<Edge>)>,
}

/// A write of keys or values into the KV cache.
struct CacheWrite {
    /// The cache before the write.
    state: Edge,
    rows: Edge,
    slots: Edge,
}

/// An attention node with the norms, RoPE and cache writes before it.
struct AttentionPrologue<'g> {
    params: AttentionParams,
    number: usize,
    /// Queries, keys and values as attention reads them.
    read: [&'g Edge; 3],
    /// Positions, sequences and pages.
    tokens: &'g [Edge],
    sinks: &'g [Edge],
    /// Sources of queries and keys.
    sources: [HeadSource; 2],
    /// Writes of keys and values.
    writes: [CacheWrite; 2],
}

impl<'g> AttentionPrologue<'g> {
    /// Matches node `number`, if it is attention over keys and values that are written just before it.
    fn of(graph: &'g Graph, uses: &[usize], number: usize) -> Option<AttentionPrologue<'g>> {
        let node = &graph.nodes[number];
        let PagedAttention(params) = *node.primitive.operation()?;
        let [q, keys, values, others @ ..] = &node.inputs[..] else {
            return None;
        };
        let (tokens, sinks) = others.split_at_checked(3)?;
        let write = |state: &Edge, format| write(graph, state, number, tokens, (params.page_size, format));
        let writes = [write(keys, params.blocks[0])?, write(values, params.blocks[1])?];
        // If queries and keys have different RoPE, neither is fused.
        let mut sources = [q, &writes[0].rows].map(|edge| head_source(graph, uses, edge, &tokens[0]));
        if sources[0].rope != sources[1].rope {
            sources = [q, &writes[0].rows].map(HeadSource::unfused);
        }
        Some(AttentionPrologue {
            params,
            number,
            read: [q, keys, values],
            tokens,
            sinks,
            sources,
            writes,
        })
    }

    /// Returns the fused node in place of attention.
    fn with_attention(&self, graph: &Graph, uses: &[usize], users: &[usize], device: &Device) -> Option<Replacement> {
        if !self.params.decode {
            return None;
        }
        let [q, keys, values] = self.read;
        let variants = [&self.sources, &[q, &self.writes[0].rows].map(HeadSource::unfused)];
        let gate = gate(graph, uses, users, self.number);
        // Tries with the gate first, then without it.
        let candidates = [gate.as_ref(), None]
            .into_iter()
            .flat_map(|gate| variants.map(|sources| (sources, gate)));
        candidates.into_iter().find_map(|(sources, gate)| {
            let decode = DecodeParams {
                attention: self.params,
                heads: preparation(sources),
                sinks: !self.sinks.is_empty(),
                gated: gate.is_some(),
            };
            let optional = optional(sources).into_iter().chain(self.sinks.iter().cloned());
            let optional = optional.chain(gate.map(|(_, edge)| edge.clone()));
            let inputs = self.inputs(sources, self.tokens.iter().cloned().chain(optional));
            let attention = &graph.nodes[self.number];
            let result = (attention.shape.clone(), attention.dtype);
            let node = self.node(graph, device, FusedAttention(decode), inputs, result)?;
            Some(Replacement {
                node,
                dropped: vec![keys.node, values.node],
                next: vec![(keys.source(), 1), (values.source(), 2)],
                absorbed: gate.map(|(user, _)| *user),
            })
        })
    }

    /// Returns one preparation node before attention, and the number of the node it replaces: the last of the fused
    /// ones.
    fn preparation_node(&self, graph: &Graph, device: &Device) -> Option<(usize, Replacement)> {
        let [q, keys, values] = self.read;
        let [q_source, _] = &self.sources;
        // Queries without norm or RoPE would be copied needlessly. The fused kernel writes floats only.
        if (q_source.rope.is_none() && q_source.norm.is_none()) || self.params.blocks != [None; 2] {
            return None;
        }
        let [key_slots, value_slots] = self.writes.each_ref().map(|write| &write.slots);
        if key_slots != value_slots {
            return None;
        }
        let indices = [key_slots, &self.tokens[0]].map(Edge::clone);
        let inputs = self.inputs(&self.sources, indices.into_iter().chain(optional(&self.sources)));
        let result = (q.layout.shape.to_vec(), graph.dtype(q));
        let operation = AttentionPreparation(preparation(&self.sources));
        let node = self.node(graph, device, operation, inputs, result)?;
        let mut dropped = vec![q.node, keys.node, values.node];
        let last = *dropped.iter().max()?;
        dropped.retain(|number| *number != last);
        let next = vec![(q.source(), 0), (keys.source(), 1), (values.source(), 2)];
        let replacement = Replacement {
            node,
            dropped,
            next,
            absorbed: None,
        };
        Some((last, replacement))
    }

    /// Returns both caches, queries, keys and values, then `others`.
    fn inputs(&self, sources: &[HeadSource; 2], others: impl Iterator<Item = Edge>) -> Vec<Edge> {
        let [keys, values] = &self.writes;
        let [q, k] = sources.each_ref().map(|source| &source.raw);
        let inputs = [&keys.state, &values.state, q, k, &values.rows];
        inputs.into_iter().cloned().chain(others).collect()
    }

    /// Returns a node that updates both caches, if the device supports it.
    fn node(
        &self,
        graph: &Graph,
        device: &Device,
        operation: impl Operation,
        inputs: Vec<Edge>,
        (shape, dtype): (Vec<usize>, DType),
    ) -> Option<Node> {
        // Queries, keys and values must not be states: the node reads them earlier or later than before. Positions may
        // be.
        let can_move = !inputs[2..5].iter().any(|edge| graph.is_state(edge));
        let [_, keys, values] = self.read;
        let next = [keys, values].map(|state| ArraySpec::new(&state.layout.shape, graph.dtype(state)));
        let node = Node {
            extra_results: next.to_vec(),
            ..Node::new(Primitive::Operation(Arc::new(operation)), inputs, shape, dtype)
        };
        (can_move && computes(graph, &node, device)).then_some(node)
    }
}

fn preparation([q, k]: &[HeadSource; 2]) -> HeadPreparation {
    HeadPreparation {
        rope: q.rope.as_ref().map(|(rope, _)| *rope),
        q_norm: q.norm.as_ref().map(|(norm, _)| *norm),
        k_norm: k.norm.as_ref().map(|(norm, _)| *norm),
    }
}

/// Returns the frequencies and the weights of the norms, where present.
fn optional(sources: &[HeadSource; 2]) -> Vec<Edge> {
    let frequencies = sources[0].rope.iter().map(|(_, frequencies)| frequencies.clone());
    let weights = sources.iter().filter_map(|source| source.norm.as_ref()?.1.clone());
    frequencies.chain(weights).collect()
}

/// Returns the node that multiplies the output of node `number` by the sigmoid of a gate, and the gate, if it is
/// computed earlier.
fn gate(graph: &Graph, uses: &[usize], users: &[usize], number: usize) -> Option<(usize, Edge)> {
    let &user = users.first()?;
    let node = &graph.nodes[user];
    let (Primitive::Elementwise(expression), [a, b]) = (&node.primitive, &node.inputs[..]) else {
        return None;
    };
    let (attn_out, edge) = if a.node == number { (0, b) } else { (1, a) };
    let step = |step: usize| &expression.steps[step];
    let is_gated = |x: usize, y: usize| {
        *step(x) == ExpressionStep::Input(attn_out)
            && matches!(*step(y), ExpressionStep::Unary(UnaryOp::Sigmoid, z) if *step(z) == ExpressionStep::Input(1 - attn_out))
    };
    let &ExpressionStep::Binary(BinaryOp::Mul, x, y) = expression.steps.last()? else {
        return None;
    };
    let f32s = expression.inputs == [DType::F32; 2] && graph.nodes[number].dtype == DType::F32;
    let whole = graph.is_whole(&node.inputs[attn_out]) && node.shape == graph.nodes[number].shape;
    let fits = (is_gated(x, y) || is_gated(y, x)) && f32s && whole && uses[number] == 1 && edge.node < number;
    fits.then(|| (user, edge.clone()))
}

/// Returns the cache write that `edge` is the result of, if its slots are those of `tokens` (positions, sequences,
/// pages) and nothing reads its result before attention `reader`.
fn write(
    graph: &Graph,
    edge: &Edge,
    reader: usize,
    tokens: &[Edge],
    (page_size, read_as): (u32, Option<BlockFormat>),
) -> Option<CacheWrite> {
    let node = &graph.nodes[edge.node];
    let [state, rows, slots] = &node.inputs[..] else {
        return None;
    };
    let format = match (node.primitive.operation(), node.primitive.operation()) {
        (Some(WriteRows), _) => None,
        (_, Some(StoreBlocks(format))) => Some(*format),
        _ => return None,
    };
    let slots_node = &graph.nodes[slots.node];
    let Slots { page_size: n } = *slots_node.primitive.operation()?;
    let same_slots = n == page_size as usize && slots_node.inputs == tokens && graph.is_whole(slots);
    let between = &graph.nodes[edge.node + 1..reader];
    let unread = !between.iter().flat_map(|n| &n.inputs).any(|e| e.node == edge.node);
    let once = graph.nodes[reader]
        .inputs
        .iter()
        .filter(|e| e.node == edge.node)
        .count()
        == 1;
    let fits = same_slots && unread && once && graph.is_whole(edge) && format == read_as;
    fits.then(|| CacheWrite {
        state: state.clone(),
        rows: rows.clone(),
        slots: slots.clone(),
    })
}

impl HeadSource {
    fn unfused(edge: &Edge) -> HeadSource {
        HeadSource {
            raw: edge.clone(),
            rope: None,
            norm: None,
        }
    }
}

/// Matches the source of `edge` (queries or keys `[T, H, D]`): RoPE at `positions`, if any, and before it the norm over
/// the heads, if any.
fn head_source(graph: &Graph, uses: &[usize], edge: &Edge, positions: &Edge) -> HeadSource {
    let mut head = HeadSource::unfused(edge);
    if let Some(node) = exact_node(graph, uses, &head.raw)
        && let Some(&Rope(params)) = node.primitive.operation()
        && node.inputs[1] == *positions
    {
        head.rope = Some((params, node.inputs[2].clone()));
        head.raw = node.inputs[0].clone();
    }
    if let Some((raw, norm, weight)) = normed(graph, uses, &head.raw, &edge.layout.shape) {
        head.norm = Some((norm, weight));
        head.raw = raw;
    }
    head
}

/// What a norm of heads reads, through heads of `shape`, the norm and its weight, if `edge` reads the norm's result.
pub(super) fn normed(
    graph: &Graph,
    uses: &[usize],
    edge: &Edge,
    shape: &[usize],
) -> Option<(Edge, Norm, Option<Edge>)> {
    let node = exact_node(graph, uses, edge)?;
    let norm = norm_of(node).filter(|_| node.shape.last() == shape.last())?;
    let raw = node.inputs[0].through(node.inputs[0].layout.reshape(shape)?);
    Some((raw, norm, node.inputs.get(1).cloned()))
}

/// The node whose whole result an edge reads, if it has one use and is f32, so that nothing is rounded in between.
fn exact_node<'g>(graph: &'g Graph, uses: &[usize], edge: &Edge) -> Option<&'g Node> {
    let node = &graph.nodes[edge.node];
    let exact = node.dtype == DType::F32 && node.inputs.first().is_some_and(|e| graph.dtype(e) == DType::F32);
    (uses[edge.node] == 1 && graph.is_whole(edge) && exact).then_some(node)
}
