use refrain_kernels::elementwise::Expression;

use super::canonicalise::sweep;
use crate::graph::{Edge, Graph, Node};
use crate::{Layout, Primitive};

/// Lets a matmul write the layout that its consumer wants: a copy that only reorders the result of a
/// matmul is dropped, and the matmul writes where the copy would have.
pub fn write_through(mut graph: Graph) -> Graph {
    let uses = graph.use_counts();
    // For each node, the node whose memory now holds its result.
    let mut holder: Vec<usize> = (0..graph.nodes.len()).collect();
    for number in 0..graph.nodes.len() {
        for edge in &mut graph.nodes[number].inputs {
            edge.node = holder[edge.node];
        }
        if let Some((source, written)) = reordered_matmul(&graph, &uses, number) {
            graph.nodes[source].written = written;
            holder[number] = source;
        }
    }
    for edge in &mut graph.outputs {
        edge.node = holder[edge.node];
    }
    sweep(graph)
}

/// When node `number` copies the whole result of a matmul in another order: that matmul, and the
/// layout in which it must write for its memory to be the copy's.
fn reordered_matmul(graph: &Graph, uses: &[usize], number: usize) -> Option<(usize, Layout)> {
    let copy = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &copy.primitive else {
        return None;
    };
    if *expression != Expression::cast(copy.dtype, copy.dtype) {
        return None;
    }
    let Edge { node, layout } = &copy.inputs[0];
    let source: &Node = &graph.nodes[*node];
    if !matches!(source.primitive, Primitive::Matmul) || uses[*node] != 1 || !source.written.is_contiguous() {
        return None;
    }
    // Sorted by stride, a reordering of the whole result is the result again.
    let mut order: Vec<usize> = (0..layout.rank()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse((layout.strides[d], layout.shape[d])));
    let sorted = layout.permute(&order);
    if layout.offset != 0 || !sorted.is_contiguous() || sorted.count() != source.written.count() {
        return None;
    }
    let target = Layout::contiguous(&copy.shape).permute(&order);
    Some((*node, target.reshape(&source.shape)?))
}
