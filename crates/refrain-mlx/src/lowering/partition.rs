//! Computes of a partition only the indices that a program reads.
//!
//! MLX's programs select a token's experts by `argpartition(scores, kth)` and keep one side of it. The largest elements
//! of each row are found without sorting the others.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, TopK, Traits, Unsupported, Values, exact_inputs, operands,
    renumber,
};
use refrain::rewrite::{Rewrite, RewriteStage, same_elements};
use refrain::{Array, DType, Device, Layout, Primitive};
use refrain_kernels::elementwise::{self, Expression};

/// (order u32 `[.., n]`, x `[.., n]`) → order, which sorts the rows of x. Of it only that matters which elements come
/// before the one at `kth`, and which after it.
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
        let [order, x] = exact_inputs(inputs)?;
        if order.dtype != DType::U32 || order.shape != x.shape || x.shape.last().is_none_or(|&n| self.kth >= n) {
            return Err(format!("{order} is no order of {x}"));
        }
        Ok(vec![(*order).clone()])
    }

    fn lower(&self, traits: &Traits, all: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [order, _, out] = operands(all);
        let mut call = elementwise::call(traits, &Expression::cast(DType::U32, DType::U32), &[order, out])?;
        renumber(&mut call, &[0, 2]);
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

/// The order that sorts the rows of x `[.., n]`, for a program that wants them partitioned at `kth`.
pub(crate) fn partitioned(order: &Array, x: &Array, kth: usize) -> Array {
    let [partitioned] = Array::apply(Partitioned { kth }, &[order, x]);
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

/// The element at `kth` and those after it, if nothing else is read.
fn largest(graph: &Graph, number: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let &Partitioned { kth } = node.primitive.operation()?;
    let (x, &n) = (&node.inputs[1], node.shape.last()?);
    let is_float = graph.dtype(x).is_float();
    (is_float && reads_only(graph, number, kth, n)).then(|| top_k(node, x, n - kth))
}

/// The element at `kth` and those before it, if nothing else is read.
fn smallest(graph: &Graph, number: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let &Partitioned { kth } = node.primitive.operation()?;
    let sort = &graph.nodes[node.inputs[0].node];
    let is_sort = sort.primitive.operation::<TopK>().is_some() && graph.is_whole(&node.inputs[0]);
    (is_sort && reads_only(graph, number, 0, kth + 1)).then(|| top_k(node, &sort.inputs[0], kth + 1))
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

/// The indices of the `k` largest elements of `x`.
fn top_k(node: &Node, x: &Edge, k: usize) -> Node {
    let mut shape = node.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = k;
    }
    let primitive = Primitive::Operation(Arc::new(TopK { k, values: false }));
    Node::new(primitive, vec![x.clone()], shape, DType::U32)
}
