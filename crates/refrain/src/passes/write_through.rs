use refrain_kernels::elementwise::Expression;

use super::canonicalise::sweep;
use crate::graph::{Edge, Graph, Node};
use crate::ops::matmul::Matmul;
use crate::{Dimensions, Layout, Primitive};

/// Removes copies that only reorder the result of a matmul: the matmul then writes its result in the layout of the
/// copy.
pub fn write_through(mut graph: Graph) -> Graph {
    let uses = graph.use_counts();
    // For each node, the node that now holds its result.
    let mut holder: Vec<usize> = (0..graph.nodes.len()).collect();
    for number in 0..graph.nodes.len() {
        for edge in &mut graph.nodes[number].inputs {
            edge.node = holder[edge.node];
        }
        if let Some((source, matmul)) = reordered_matmul(&graph, &uses, number) {
            graph.nodes[source] = matmul;
            holder[number] = source;
        }
    }
    for edge in &mut graph.outputs {
        edge.node = holder[edge.node];
    }
    sweep(graph)
}

/// If node `number` is a copy that reorders the whole result of a matmul: the index of the matmul, and the matmul that
/// writes the copy's layout.
fn reordered_matmul(graph: &Graph, uses: &[usize], number: usize) -> Option<(usize, Node)> {
    let copy = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &copy.primitive else {
        return None;
    };
    if *expression != Expression::cast(copy.dtype, copy.dtype) {
        return None;
    }
    let Edge { node, layout, .. } = &copy.inputs[0];
    let source: &Node = &graph.nodes[*node];
    if source.primitive.operation::<Matmul>().is_none() || uses[*node] != 1 || !source.layout.is_contiguous() {
        return None;
    }
    // Permuted to descending strides, a reordering of the whole result must be contiguous.
    let mut order: Vec<usize> = (0..layout.rank()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse((layout.strides[d], layout.shape[d])));
    let sorted = layout.permute(&order);
    if layout.offset != 0 || !sorted.is_contiguous() || sorted.count() != source.layout.count() {
        return None;
    }
    let target = Layout::contiguous(&copy.shape).permute(&order);
    let matmul = match target.reshape(&source.shape) {
        Some(layout) => Node {
            layout,
            ..source.clone()
        },
        None => as_batch(source, &target)?,
    };
    Some((*node, matmul))
}

/// The matmul `[.., M, N]` as a batch of smaller matrices `[.., M₁, N₁, M₂, N₂]` with M = M₁ · M₂ and N = N₁ · N₂.
/// Needed if the rows or columns of one matrix have no single stride in `target`: heads of columns that become rows,
/// say.
fn as_batch(matmul: &Node, target: &Layout) -> Option<Node> {
    let rank = matmul.shape.len();
    let (batch, &[m, n]) = matmul.shape.split_at(rank - 2) else {
        return None;
    };
    let columns = trailing(target, n)?;
    let rows = trailing(&leading(target, columns.0), m)?;
    let ((_, [m1, m2]), (_, [n1, n2])) = (rows, columns);
    // Kernels support two batch dimensions.
    if batch.iter().chain([&m1, &n1]).filter(|&&extent| extent > 1).count() > 2 {
        return None;
    }
    let with = |tail: &[usize]| [batch, tail].concat();
    let at = rank - 2;
    // M₁ and N₁ are batch dimensions: each operand is broadcast along the other's.
    let a = matmul.inputs[0]
        .layout
        .reshape(&with(&[m1, m2, matmul.inputs[0].layout.shape[rank - 1]]))?;
    let k = a.shape[rank];
    let b = matmul.inputs[1].layout.reshape(&with(&[k, n1, n2]))?;
    let swapped = |layout: &Layout, i: usize| {
        let mut axes: Vec<usize> = (0..layout.rank()).collect();
        axes.swap(i, i + 1);
        layout.permute(&axes)
    };
    let layouts = [repeated(a, at + 1, n1), repeated(swapped(&b, at), at, m1)];
    let layout = swapped(&target.reshape(&with(&[m1, m2, n1, n2]))?, at + 1);
    let inputs = matmul
        .inputs
        .iter()
        .zip(layouts)
        .map(|(edge, layout)| edge.through(layout))
        .collect();
    Some(Node {
        shape: layout.shape.to_vec(),
        inputs,
        layout,
        ..matmul.clone()
    })
}

/// The number of trailing dimensions that have `extent` elements together, and their shape as two dimensions.
fn trailing(layout: &Layout, extent: usize) -> Option<(usize, [usize; 2])> {
    let rank = layout.rank();
    let taken = (0..=rank).find(|&taken| layout.shape[rank - taken..].iter().product::<usize>() == extent)?;
    let part = Layout {
        shape: Dimensions::from_slice(&layout.shape[rank - taken..]),
        strides: Dimensions::from_slice(&layout.strides[rank - taken..]),
        offset: 0,
    };
    match part.collapsed().shape[..] {
        [] => Some((taken, [1, 1])),
        [n] => Some((taken, [1, n])),
        [outer, inner] => Some((taken, [outer, inner])),
        _ => None,
    }
}

/// The layout without its last `dropped` dimensions.
fn leading(layout: &Layout, dropped: usize) -> Layout {
    let rank = layout.rank() - dropped;
    Layout {
        shape: Dimensions::from_slice(&layout.shape[..rank]),
        strides: Dimensions::from_slice(&layout.strides[..rank]),
        offset: layout.offset,
    }
}

/// The layout with an additional dimension `at` of extent `n` along which it is broadcast.
fn repeated(mut layout: Layout, at: usize, n: usize) -> Layout {
    layout.shape.insert(at, n);
    layout.strides.insert(at, 0);
    layout
}
