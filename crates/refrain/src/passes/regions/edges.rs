//! What edges see, and what kernels are told of them.

use std::sync::LazyLock;

use refrain_kernels::{OperandSpec, Traits};

use crate::device::Backend;
use crate::graph::{Edge, Graph};
use crate::{Device, Layout};

/// What a node's kernel is given: what it reads as it lies, then its result.
pub(super) fn operands(graph: &Graph, inputs: &[Edge], result: OperandSpec) -> Vec<OperandSpec> {
    let operand = |edge: &Edge| OperandSpec {
        dtype: graph.dtype(edge),
        layout: edge.layout.clone(),
    };
    inputs.iter().map(operand).chain([result]).collect()
}

/// What kernels are chosen by; the least that there is where none run.
pub(super) fn traits(device: &Device) -> &Traits {
    static LEAST: LazyLock<Traits> = LazyLock::new(Traits::minimal);
    match device.backend() {
        Backend::Vulkan { traits, .. } => traits,
        Backend::Cpu => &LEAST,
    }
}

/// Whether an edge sees all that its source holds, in order.
pub(super) fn is_whole(graph: &Graph, edge: &Edge) -> bool {
    let written = &graph.nodes[edge.node].written_of(edge.result);
    let gapless = written.is_contiguous() && edge.layout.is_contiguous();
    gapless && edge.layout.offset == written.offset && edge.layout.count() == written.count()
}

/// Whether both see the same places: strides of dimensions of one element do not matter.
pub(super) fn same_places(a: &Layout, b: &Layout) -> bool {
    let steps = |layout: &Layout| -> Vec<(usize, usize)> {
        let pairs = layout.shape.iter().copied().zip(layout.strides.iter().copied());
        pairs.filter(|(n, _)| *n > 1).collect()
    };
    a.shape == b.shape && a.offset == b.offset && steps(a) == steps(b)
}
