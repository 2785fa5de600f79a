//! Norm and RoPE of heads in one step, for queries and keys that attention does not prepare itself.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values};
use refrain::rewrite::{Norm, Replacement, computes, replace};
use refrain::{Device, Primitive};
use refrain_kernels::attention::heads;

use super::prepare::prepared_heads;
use super::rewrite::normed;
use crate::RopeParams;
use crate::rope::Rope;

/// (x `[T, H, D]`, positions `[T]`, frequencies, {weight of the norm}) → x after the norm of each head and RoPE.
#[derive(Hash, Debug)]
struct PreparedHeads {
    norm: Norm,
    rope: RopeParams,
}

impl Operation for PreparedHeads {
    fn name(&self) -> &'static str {
        "prepare_heads"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let expected = 3 + usize::from(self.norm.weighted);
        match inputs {
            [x, ..] if inputs.len() == expected => Ok(vec![(*x).clone()]),
            _ => Err(format!("{} inputs, expected {expected}", inputs.len())),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let call = heads::call(traits, &operands.iter().collect::<Vec<_>>(), self.norm, self.rope)?;
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let weight = self.norm.weighted.then_some(3);
        let values = prepared_heads(&x, 0, Some(self.norm), weight, Some((self.rope, 2)), 1);
        drop(x);
        step.store(0, &Values::F32(values));
    }

    fn detail(&self) -> String {
        format!(" of rope of rms_norm eps {:e}", self.norm.eps)
    }
}

/// Joins norms of heads with the RoPE behind them.
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
    replace(graph, found)
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
    let operation = Primitive::Operation(Arc::new(PreparedHeads { norm, rope }));
    Some(Node::new(operation, inputs, node.shape.clone(), node.dtype))
}
