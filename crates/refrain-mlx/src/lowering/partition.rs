//! Computes of a partition only the indices that a program reads.
//!
//! MLX's programs select a token's experts by `argpartition(scores, kth)` and keep one side of it. The largest elements
//! of each row are found without sorting the others.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Reduce, TopK, Traits, Unsupported, Values, exact_inputs,
    operands, renumber,
};
use refrain::rewrite::{Rewrite, RewriteStage, same_elements};
use refrain::{Array, DType, Device, Layout, Primitive};
use refrain_kernels::elementwise::{self, Expression};

/// (order u32 `[.., n]`, x `[.., n]`, keys `[.., n]`) → order, which sorts the rows of x, and those of the keys
/// descending. Of it only that matters which elements come before the one at `kth`, and which after it.
#[derive(Hash, Debug)]
struct Partitioned {
    kth: usize,
}

impl Operation for Partitioned {
    fn name(&self) -> &'static str {
        "partitioned"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [order, x, keys] = exact_inputs(inputs)?;
        let same_shape = order.shape == x.shape && order.shape == keys.shape;
        if order.dtype != DType::U32 || !same_shape || x.shape.last().is_none_or(|&n| self.kth >= n) {
            return Err(format!("{order} is no order of {x}"));
        }
        Ok(vec![(*order).clone()])
    }

    fn lower(&self, traits: &Traits, all: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [order, _, _, out] = operands(all);
        let mut call = elementwise::call(traits, &Expression::cast(DType::U32, DType::U32), &[order, out])?;
        renumber(&mut call, &[0, 3]);
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::U32(x.u32(0)));
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::BeforeProducts,
            run,
        }]
    }
}

/// The order that sorts the rows of x `[.., n]`, and those of `keys` descending, for a program that wants them partitioned
/// at `kth`.
pub(crate) fn partitioned(order: &Array, x: &Array, keys: &Array, kth: usize) -> Array {
    let [partitioned] = Array::apply(Partitioned { kth }, &[order, x, keys]);
    partitioned
}

/// The same graph with the largest or the smallest elements, where nothing reads the others.
fn run(mut graph: Graph, _device: &Device) -> Graph {
    for number in 0..graph.nodes.len() {
        let Some(found) = largest(&graph, number).or_else(|| smallest(&graph, number)) else {
            continue;
        };
        for edge in readers(&mut graph, number) {
            edge.layout = Layout::contiguous(&edge.layout.shape);
        }
        graph.nodes[number] = found;
    }
    graph
}

fn readers(graph: &mut Graph, number: usize) -> impl Iterator<Item = &mut Edge> {
    let inputs = graph.nodes.iter_mut().flat_map(|node| &mut node.inputs);
    inputs.chain(&mut graph.outputs).filter(move |edge| edge.node == number)
}

/// The element at `kth` and those after it, if nothing else is read. The one at `kth` comes last, so that their order
/// must make no difference.
fn largest(graph: &Graph, number: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let &Partitioned { kth } = node.primitive.operation()?;
    let (x, &n) = (&node.inputs[1], node.shape.last()?);
    let is_float = graph.dtype(x).is_float();
    let suits = is_float && reads_only(graph, number, kth, n) && is_unordered(graph, number, n - kth);
    suits.then(|| top_k(node, x, n - kth))
}

/// The element at `kth` and those before it, if nothing else is read.
fn smallest(graph: &Graph, number: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let &Partitioned { kth } = node.primitive.operation()?;
    reads_only(graph, number, 0, kth + 1).then(|| top_k(node, &node.inputs[2], kth + 1))
}

/// Whether all that reads node `number` reads the columns from `first` to `last`, all of them.
fn reads_only(graph: &Graph, number: usize, first: usize, last: usize) -> bool {
    let node = &graph.nodes[number];
    let (mut start, mut stop) = (vec![0; node.shape.len()], node.shape.clone());
    if let (Some(start), Some(stop)) = (start.last_mut(), stop.last_mut()) {
        (*start, *stop) = (first, last);
    }
    let part = node.layout.slice(&start, &stop, &vec![1; node.shape.len()]);
    let edges = graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs);
    let is_part = |edge: &Edge| {
        let seen = edge.layout.reshape(&part.shape);
        seen.is_some_and(|seen| same_elements(&seen, &part))
    };
    edges.filter(|edge| edge.node == number).all(is_part)
}

/// Whether it makes no difference in which order the `k` columns of node `number` come: what is computed of them keeps
/// their axis, and reads all of it, until it is reduced. Only a node that mixes them with what does not depend on them,
/// by products along this axis, could tell the difference, and is not recognised.
fn is_unordered(graph: &Graph, number: usize, k: usize) -> bool {
    let mut depends = vec![false; graph.nodes.len()];
    depends[number] = k > 1;
    for (user, node) in graph.nodes.iter().enumerate().skip(number + 1) {
        let dependent: Vec<&Edge> = node.inputs.iter().filter(|edge| depends[edge.node]).collect();
        let mut axes = dependent.iter().map(|edge| axis(graph, edge, number, k));
        if dependent.is_empty() {
            continue;
        }
        if !axes.all(|axis| axis.is_some()) || !keeps_order_unread(graph, node, &depends, [number, k]) {
            return false;
        }
        depends[user] = !reduces(graph, node, [number, k]);
    }
    !graph.outputs.iter().any(|edge| depends[edge.node])
}

/// Where an edge reads the axis of the `k` columns of node `number`, all of it: its dimension, or nothing in particular
/// if the axis is joined with others and everything is read. `None` if it may read a part.
fn axis(graph: &Graph, edge: &Edge, number: usize, k: usize) -> Option<Option<usize>> {
    let read = &edge.layout;
    if edge.node == number {
        // Known to read all columns.
        return Some(read.shape.iter().rposition(|&extent| extent == k));
    }
    let written = graph.nodes[edge.node].layout_of(edge.result);
    let mut found = None;
    for (&extent, &stride) in written.shape.iter().zip(&written.strides) {
        if extent == k {
            let mut dimensions = read.shape.iter().zip(&read.strides);
            found = Some(dimensions.position(|seen| seen == (&extent, &stride))?);
        }
    }
    (found.is_some() || graph.is_whole(edge)).then_some(found)
}

/// Whether a node that depends on node `number` does the same at every position of the axis of its `k` columns.
fn keeps_order_unread(graph: &Graph, node: &Node, depends: &[bool], [number, k]: [usize; 2]) -> bool {
    if let Primitive::Elementwise(_) = &node.primitive {
        let mut axes = (node.inputs.iter().filter(|edge| depends[edge.node]))
            .filter_map(|edge| axis(graph, edge, number, k).flatten());
        return axes.all(|axis| {
            let mut others = node.inputs.iter().filter(|edge| !depends[edge.node]);
            others.all(|edge| edge.layout.strides.get(axis).is_none_or(|&stride| stride == 0))
        });
    }
    // Elements at positions that do not depend on the order.
    let is_taken = |indices: &Edge| !depends[indices.node] && matches!(graph.dtype(indices), DType::U32 | DType::I32);
    !matches!(&node.inputs[..], [x, indices] if depends[x.node] && is_taken(indices))
}

/// Whether a node reduces the axis of the `k` columns of node `number`.
fn reduces(graph: &Graph, node: &Node, [number, k]: [usize; 2]) -> bool {
    let (Some(&Reduce { axes, .. }), [x]) = (node.primitive.operation(), &node.inputs[..]) else {
        return false;
    };
    let axis = axis(graph, x, number, k).flatten();
    axis.is_some_and(|axis| axis + axes >= x.layout.shape.len())
}

/// The indices of the `k` largest elements of `x`.
fn top_k(node: &Node, x: &Edge, k: usize) -> Node {
    let mut shape = node.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = k;
    }
    let primitive = Primitive::Operation(Arc::new(TopK { k, values: false }));
    Node::new(primitive, vec![x.clone()], shape, DType::U32)
}
