//! Norm and RoPE of heads in one step, for queries, keys and values that attention does not prepare itself.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values};
use refrain::rewrite::{Replacement, computes, replace};
use refrain::{DType, Device, Layout, Primitive};
use refrain_kernels::attention::heads::{self, HeadParams};

use super::prepare::prepared_heads;
use super::rewrite::normed;
use super::stored_twice;
use crate::rope::Rope;

/// (x `[T, H, D]`, {positions `[T]`, frequencies}, {weight of the norm}) → x after the norm of each head and RoPE, in one or
/// two results. The first of two may have more tokens, which are zeros.
#[derive(Hash, Debug)]
struct PreparedHeads {
    params: HeadParams,
    results: Vec<HeadResult>,
}

/// How a result is stored.
#[derive(Clone, Hash, Debug)]
pub(super) struct HeadResult {
    pub spec: ArraySpec,
    /// Whether the tokens of a head follow each other (`[H, T, D]`), and not the heads of a token.
    pub by_head: bool,
}

impl HeadResult {
    /// Returns `whole`, the layout of the result, as `[T, H, D]` for heads of this shape.
    fn by_token(&self, whole: &Layout, shape: &[usize]) -> Option<Layout> {
        let &[_, heads, dim] = shape else { return None };
        let tokens = whole.count().checked_div(heads * dim)?;
        match self.by_head {
            true => Some(whole.reshape(&[heads, tokens, dim])?.permute(&[1, 0, 2])),
            false => whole.reshape(&[tokens, heads, dim]),
        }
    }
}

impl PreparedHeads {
    /// The operands, with results as `[T, H, D]`.
    fn by_token(&self, operands: &[OperandSpec]) -> Result<Vec<OperandSpec>, Unsupported> {
        let mut operands = operands.to_vec();
        let shape = operands[0].layout.shape.clone();
        for (result, operand) in self.results.iter().zip(&mut operands[self.params.output()..]) {
            operand.layout = (result.by_token(&operand.layout, &shape)).ok_or_else(|| Unsupported::Size {
                op: "prepare_heads",
                what: format!("a result of shape {:?} for heads {shape:?}", operand.layout.shape),
            })?;
        }
        Ok(operands)
    }
}

impl Operation for PreparedHeads {
    fn name(&self) -> &'static str {
        "prepare_heads"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let expected = self.params.output();
        if inputs.len() != expected {
            return Err(format!("{} inputs, expected {expected}", inputs.len()));
        }
        Ok(self.results.iter().map(|result| result.spec.clone()).collect())
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let operands = self.by_token(operands)?;
        let call = heads::call(traits, &operands.iter().collect::<Vec<_>>(), &self.params)?;
        Ok(Kernels::one(call))
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        let operands = self.by_token(operands)?;
        heads::check(traits, &operands.iter().collect::<Vec<_>>(), &self.params)
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let &[_, heads, dim] = x.shape(0) else {
            unreachable!("heads have three dimensions")
        };
        let [frequencies, weight] = self.params.optional();
        let rope = self.params.rope.zip(frequencies);
        let positions = self.params.positions().unwrap_or_default();
        let values = prepared_heads(&x, 0, self.params.norm, weight, rope, positions);
        drop(x);
        for (number, HeadResult { spec, by_head }) in self.results.iter().enumerate() {
            let count = spec.shape.iter().product();
            let mut values = if *by_head {
                let tokens = count / (heads * dim);
                let mut ordered = Vec::with_capacity(count);
                for head in 0..heads {
                    for row in values.chunks_exact(heads * dim) {
                        ordered.extend_from_slice(&row[head * dim..][..dim]);
                    }
                    ordered.resize((head + 1) * tokens * dim, 0.0);
                }
                ordered
            } else {
                let mut values = values.clone();
                values.resize(count, 0.0);
                values
            };
            if self.params.bounded && spec.dtype == DType::F16 {
                let [least, most] = HALF_RANGE;
                values.iter_mut().for_each(|x| *x = x.clamp(least, most));
            }
            step.store(number, &Values::F32(values));
        }
    }

    fn detail(&self) -> String {
        let rope = if self.params.rope.is_some() { " of rope" } else { "" };
        let norm = (self.params.norm).map_or(String::new(), |norm| format!(" of rms_norm eps {:e}", norm.eps));
        let twice = if self.params.twice { ", stored twice" } else { "" };
        format!("{rope}{norm}{twice}")
    }
}

/// The least and the largest finite number of f16.
pub(super) const HALF_RANGE: [f32; 2] = [-65504.0, 65504.0];

/// Joins norms of heads with the RoPE behind them, and then what is stored twice.
pub(super) fn fuse(graph: Graph, device: &Device) -> Graph {
    let uses = graph.use_counts();
    let found = (0..graph.nodes.len()).map(|number| {
        let node = joined(&graph, &uses, number)?;
        computes(&graph, &node, device).then_some(Replacement {
            node,
            dropped: vec![],
            next: vec![],
            absorbed: None,
        })
    });
    let found = found.collect();
    stored_twice::fuse(replace(graph, found), device)
}

/// The node in place of RoPE `number`, if a norm comes before it.
fn joined(graph: &Graph, uses: &[usize], number: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let &Rope(rope) = node.primitive.operation()?;
    let [x, positions, frequencies] = &node.inputs[..] else {
        return None;
    };
    let (raw, norm, weight) = normed(graph, uses, x, &node.shape)?;
    if graph.is_state(&raw) {
        return None;
    }
    let inputs: Vec<Edge> = [raw, positions.clone(), frequencies.clone()]
        .into_iter()
        .chain(weight)
        .collect();
    let params = HeadParams {
        norm: Some(norm),
        rope: Some(rope),
        twice: false,
        bounded: false,
    };
    let result = HeadResult {
        spec: ArraySpec::new(&node.shape, node.dtype),
        by_head: false,
    };
    Some(prepared(params, vec![result], inputs))
}

/// The node with these results, at least one.
pub(super) fn prepared(params: HeadParams, results: Vec<HeadResult>, inputs: Vec<Edge>) -> Node {
    let specs: Vec<ArraySpec> = results.iter().map(|result| result.spec.clone()).collect();
    let operation = Primitive::Operation(Arc::new(PreparedHeads { params, results }));
    Node {
        extra_results: specs[1..].to_vec(),
        ..Node::new(operation, inputs, specs[0].shape.to_vec(), specs[0].dtype)
    }
}

/// Heads as they are.
pub(super) const UNCHANGED: HeadParams = HeadParams {
    norm: None,
    rope: None,
    twice: false,
    bounded: false,
};

/// What a node does to heads, and what it reads, if it is RoPE or a norm and RoPE.
pub(super) fn made_by(node: &Node) -> Option<(HeadParams, Vec<Edge>)> {
    let inputs = node.inputs.clone();
    if let Some(PreparedHeads { params, .. }) = node.primitive.operation() {
        return Some((*params, inputs));
    }
    let &Rope(rope) = node.primitive.operation()?;
    let params = HeadParams {
        rope: Some(rope),
        ..UNCHANGED
    };
    Some((params, inputs))
}
