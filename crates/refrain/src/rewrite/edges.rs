//! Helpers for rewrites: operands of nodes, and whether a device supports them.

use std::sync::LazyLock;

use refrain_kernels::rms_norm::Norm;
use refrain_kernels::{OperandSpec, Traits};

use crate::device::Backend;
use crate::graph::{Edge, Graph, Node};
use crate::ops::rms_norm::Normalisation;
use crate::{Device, Layout, Primitive};

/// The operands of a node's kernel: its inputs in their layouts, then its results.
pub(crate) fn operands(
    graph: &Graph,
    inputs: &[Edge],
    results: impl IntoIterator<Item = OperandSpec>,
) -> Vec<OperandSpec> {
    let operand = |edge: &Edge| OperandSpec {
        dtype: graph.dtype(edge),
        layout: edge.layout.clone(),
    };
    inputs.iter().map(operand).chain(results).collect()
}

/// The traits that kernels are chosen by; minimal traits for the CPU executor.
fn traits(device: &Device) -> &Traits {
    static MINIMAL: LazyLock<Traits> = LazyLock::new(Traits::minimal);
    match device.backend() {
        Backend::Vulkan { traits, .. } => traits,
        Backend::Cpu => &MINIMAL,
    }
}

/// Whether the device supports an operation node, not yet in the graph, over its inputs in their layouts.
pub fn computes(graph: &Graph, node: &Node, device: &Device) -> bool {
    let Primitive::Operation(operation) = &node.primitive else {
        return false;
    };
    let result = |result: usize| OperandSpec {
        dtype: node.dtype_of(result),
        layout: node.layout_of(result),
    };
    let operands = operands(graph, &node.inputs, (0..node.new_results()).map(result));
    operation.check(traits(device), &operands).is_ok()
}

/// The norm that a node computes, if it computes one.
pub fn norm_of(node: &Node) -> Option<Norm> {
    let Normalisation(norm) = node.primitive.operation()?;
    Some(*norm)
}

/// Whether both layouts visit the same elements. Strides of dimensions of extent 1 do not matter.
pub fn same_elements(a: &Layout, b: &Layout) -> bool {
    let steps = |layout: &Layout| -> Vec<(usize, usize)> {
        let pairs = layout.shape.iter().copied().zip(layout.strides.iter().copied());
        pairs.filter(|(n, _)| *n > 1).collect()
    };
    a.shape == b.shape && a.offset == b.offset && steps(a) == steps(b)
}

/// Rows `first..first + count` of a matrix.
pub fn rows(edge: &Edge, first: usize, count: usize) -> Edge {
    let Layout { shape, .. } = &edge.layout;
    edge.through(edge.layout.slice(&[first, 0], &[first + count, shape[1]], &[1, 1]))
}
