use std::sync::Arc;

use refrain_kernels::projection::{Projection, Section, WeightStorage};
use refrain_kernels::{DType, OperandSpec};

use super::support::SupportCache;
use crate::Primitive;
use crate::graph::{Edge, Graph, Node};
use crate::ops::matmul::Matmul;
use crate::ops::projection::JoinedProducts;
use crate::ops::quant_matmul::QuantMatmul;
use crate::rewrite::operands;

/// Maximum number of tokens of a projection on the CPU executor, where no kernel sets the limit.
const MAX_TOKENS_ON_CPU: usize = 8;

/// A node that multiplies tokens `[T, K]` with matrices and possibly does more, as a projection.
#[derive(Clone)]
pub(super) struct Product {
    pub projection: Projection,
    /// The projection's operands without the result.
    pub inputs: Vec<Edge>,
    /// T, the number of tokens.
    pub tokens: usize,
    /// Columns of the result.
    pub columns: usize,
    pub dtype: DType,
}

impl Product {
    /// Node `number` as a projection, if it is a product that may be one. Whether the device supports its operands is
    /// up to [`Product::supports`].
    pub(super) fn of(graph: &Graph, number: usize, device: &SupportCache<'_>) -> Option<Product> {
        let node = &graph.nodes[number];
        let &[tokens, columns] = &node.shape[..] else {
            return None;
        };
        let primitive = &node.primitive;
        let (projection, inputs) = if let Some(joined) = primitive.operation::<JoinedProducts>() {
            (joined.projection.clone(), node.inputs.clone())
        } else if let Some(QuantMatmul { format }) = primitive.operation() {
            plain(node, WeightStorage::Quantised(*format), node.inputs.clone())
        } else if let Some(Matmul) = primitive.operation() {
            let inputs = vec![node.inputs[0].clone(), rows_of(graph, node)?];
            plain(node, WeightStorage::Dense, inputs)
        } else {
            return None;
        };
        let product = Product {
            projection,
            inputs,
            tokens,
            columns,
            dtype: node.dtype,
        };
        let contiguous = node.layout.is_contiguous() && node.layout.offset == 0;
        // A reader of a state must not move.
        let moves = !product.inputs.iter().any(|edge| graph.is_state(edge));
        (contiguous && moves && product.has_supported_size(device)).then_some(product)
    }

    /// x `[T, K]`.
    pub(super) fn x(&self) -> &Edge {
        &self.inputs[0]
    }

    /// Whether this is one matrix without an epilogue.
    pub(super) fn is_plain(&self) -> bool {
        self.projection.norm.is_none() && matches!(&self.projection.sections[..], [section] if section.is_plain())
    }

    fn has_supported_size(&self, device: &SupportCache<'_>) -> bool {
        let is_few = !device.device().is_cpu() || self.tokens <= MAX_TOKENS_ON_CPU;
        self.tokens > 0 && self.columns > 0 && is_few
    }

    /// Whether the kernels support the operands in their layouts.
    pub(super) fn supports(&self, graph: &Graph, device: &SupportCache<'_>) -> bool {
        let result = OperandSpec::contiguous(self.dtype, &[self.tokens, self.columns]);
        device.supports(&self.projection, operands(graph, &self.inputs, [result]))
    }

    pub(super) fn into_node(self) -> Node {
        let (shape, dtype) = ([self.tokens, self.columns], self.dtype);
        let joined = JoinedProducts {
            projection: self.projection,
            shape,
            dtype,
        };
        Node::new(
            Primitive::Operation(Arc::new(joined)),
            self.inputs,
            shape.to_vec(),
            dtype,
        )
    }
}

fn plain(node: &Node, weights: WeightStorage, inputs: Vec<Edge>) -> (Projection, Vec<Edge>) {
    let projection = Projection {
        norm: None,
        sections: vec![Section::plain(weights, node.dtype)],
    };
    (projection, inputs)
}

/// The right-hand side of a matmul as rows `[N, K]`, if it is a stored matrix.
fn rows_of(graph: &Graph, matmul: &Node) -> Option<Edge> {
    let edge = &matmul.inputs[1];
    let stored = matches!(graph.nodes[edge.node].primitive, Primitive::Stored { .. });
    (stored && edge.layout.rank() == 2).then(|| edge.through(edge.layout.permute(&[1, 0])))
}
