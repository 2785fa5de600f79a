//! Rewrite that fuses products with experts with the elementwise node that uses them (an activation times a gate), and
//! those of few tokens with the weighted sum over a token's experts and the elementwise node that uses the sum. For many
//! tokens it makes the weighted sum one node.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{Reduce, Softmax, TakeAlong, TopK};
use refrain::rewrite::{computes, reordered, rows as sliced, same_elements};
use refrain::{DType, Device, Dimensions, Layout, Primitive};
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep};
use refrain_kernels::projection::{ExpertProjection, MAX_GEMV_TOKENS, Routed, Section, WeightStorage};
use refrain_kernels::reduce::ReduceOp;

use super::ExpertMatmul;
use super::projection::FusedExperts;
use super::sum::ExpertSum;

/// The sum over the last dimension.
const SUM: Reduce = Reduce {
    op: ReduceOp::Sum,
    axes: 1,
};
/// Maximum number of matrices whose products one epilogue combines.
const MAX_MATRICES: usize = 2;

/// Fuses products with experts with their only user.
pub(super) fn fuse(mut graph: Graph, device: &Device) -> Graph {
    skip_softmax(&mut graph);
    let mut uses = graph.use_counts();
    for number in 0..graph.nodes.len() {
        let fused = (per_expert(&graph, &uses, number))
            .or_else(|| summed(&graph, &uses, number))
            .or_else(|| with_epilogue(&graph, &uses, number));
        let node = fused.and_then(|fused| fused.node(&graph, device));
        if let Some(node) = node.or_else(|| sum_node(&graph, &uses, number, device)) {
            node.inputs.iter().for_each(|e| uses[e.node] += 1);
            graph.nodes[number] = node;
        }
    }
    graph
}

/// Makes top-k read a softmax's input instead of its output: the order is the same.
fn skip_softmax(graph: &mut Graph) {
    for number in 0..graph.nodes.len() {
        let Node { primitive, inputs, .. } = &graph.nodes[number];
        if let (Some(TopK { values: false, .. }), [scores]) = (primitive.operation(), &inputs[..])
            && let Some(raw) = softmax_of(graph, scores)
        {
            graph.nodes[number].inputs = vec![raw];
        }
    }
}

/// Returns the input of the softmax whose whole output is `edge`.
fn softmax_of(graph: &Graph, edge: &Edge) -> Option<Edge> {
    let node = &graph.nodes[edge.node];
    let whole = edge.layout == node.layout && node.dtype == DType::F32;
    let raw = node.inputs.first()?;
    let exact = graph.dtype(raw) == DType::F32;
    (node.primitive.operation::<Softmax>().is_some() && whole && exact).then(|| raw.clone())
}

/// A product with experts.
struct ExpertProduct<'g> {
    /// `[T, U, K]`.
    x: &'g Edge,
    experts: &'g Edge,
    planes: &'g [Edge],
    weights: WeightStorage,
    /// T, U, rows of an expert and K.
    sizes: [usize; 4],
}

/// A use of a product by an elementwise node: the input's index, and the first of the expert's rows it reads.
struct ExpertUse<'g> {
    input: usize,
    product: ExpertProduct<'g>,
    first: usize,
}

impl<'g> ExpertProduct<'g> {
    /// Matches the product whose whole output is `edge`, if it has no other than `reads` uses.
    fn of(graph: &'g Graph, uses: &[usize], edge: &Edge, reads: usize) -> Option<ExpertProduct<'g>> {
        let node = &graph.nodes[edge.node];
        let ExpertMatmul { format, .. } = *node.primitive.operation()?;
        let [x, experts, planes @ ..] = &node.inputs[..] else {
            return None;
        };
        let (&[tokens, used, rows], &[.., columns]) = (&node.shape[..], &x.layout.shape[..]) else {
            return None;
        };
        let alone = uses[edge.node] == reads && node.layout.is_contiguous() && node.dtype == DType::F32;
        let can_move = !node.inputs.iter().any(|edge| graph.is_state(edge));
        (alone && can_move && tokens > 0).then_some(ExpertProduct {
            x,
            experts,
            planes,
            weights: format.map_or(WeightStorage::Dense, WeightStorage::Quantised),
            sizes: [tokens, used, rows, columns],
        })
    }

    /// Returns x as `[T, K]`, if all experts of a token get the same input.
    fn shared_x(&self) -> Option<Edge> {
        let [tokens, used, _, columns] = self.sizes;
        let strides = &self.x.layout.strides;
        (used == 1 || strides[1] == 0).then(|| {
            self.x.through(Layout {
                shape: vec![tokens, columns].into(),
                strides: vec![strides[0], strides[2]].into(),
                offset: self.x.layout.offset,
            })
        })
    }
}

/// Matches an elementwise node over the outputs of each token's experts.
fn per_expert(graph: &Graph, uses: &[usize], number: usize) -> Option<ExpertRewrite> {
    let node = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    let &rows = node.shape.last()?;
    let use_of = |input: usize| {
        let edge = &node.inputs[input];
        let reads = node.inputs.iter().filter(|e| e.node == edge.node).count();
        let product = ExpertProduct::of(graph, uses, edge, reads)?;
        let [tokens, used, all, _] = product.sizes;
        let first = edge.layout.offset;
        let expected = Layout {
            shape: vec![tokens, used, rows].into(),
            strides: vec![used * all, all, 1].into(),
            offset: first,
        };
        // The node may have further dimensions, such as a batch.
        let seen = edge.layout.reshape(&expected.shape)?;
        (first + rows <= all && same_elements(&seen, &expected)).then_some(ExpertUse { input, product, first })
    };
    let mut product_uses: Vec<ExpertUse<'_>> = (0..node.inputs.len()).filter_map(use_of).collect();
    let first_product = &product_uses.first()?.product;
    let (x, experts, weights) = (first_product.x, first_product.experts, first_product.weights);
    let [tokens, used, between, _] = first_product.sizes;
    product_uses.retain(|ExpertUse { product: p, .. }| {
        p.x == x && p.experts == experts && p.weights == weights && p.sizes[2] == between
    });
    product_uses.truncate(MAX_MATRICES);
    let parts: Vec<usize> = product_uses.iter().map(|product_use| product_use.input).collect();
    let mut inputs = vec![product_uses[0].product.shared_x()?, experts.clone()];
    for ExpertUse { product, first, .. } in &product_uses {
        inputs.extend(product.planes.iter().map(|plane| {
            let count = plane.layout.shape[0] - (between - rows);
            sliced(plane, *first, count)
        }));
    }
    let (others, epilogue) = split_inputs(node, expression, &parts, &[tokens * used, rows])?;
    inputs.extend(others);
    let projection = ExpertProjection {
        norm: None,
        section: Section {
            parts: vec![weights; parts.len()],
            epilogue,
        },
        routed: Routed::PerExpert,
        between,
    };
    Some(ExpertRewrite {
        projection,
        inputs,
        shape: [tokens * used, rows],
        dtype: node.dtype,
    })
}

/// A weighted sum of the outputs of each token's experts.
struct WeightedSum<'g> {
    /// The experts' outputs, `[T, U, N]`, whole.
    each: &'g Edge,
    /// `[T, U]`.
    weights: Edge,
    /// T, U and N.
    sizes: [usize; 3],
}

impl<'g> WeightedSum<'g> {
    /// Matches node `number`, if its intermediate nodes have no other uses.
    fn of(graph: &'g Graph, uses: &[usize], number: usize) -> Option<WeightedSum<'g>> {
        let node = &graph.nodes[number];
        if node.primitive.operation() != Some(&SUM) {
            return None;
        }
        let weighted = &node.inputs[0];
        let product = &graph.nodes[weighted.node];
        let [outer @ .., used, rows] = &product.shape[..] else {
            return None;
        };
        let axis = outer.len();
        let sizes = [outer.iter().product(), *used, *rows];
        let order: Vec<usize> = (0..axis).chain([axis + 1, axis]).collect();
        let whole = Layout::contiguous(&product.shape);
        let over_experts = same_elements(&weighted.layout, &whole.permute(&order));
        if !over_experts || uses[weighted.node] != 1 || node.dtype != DType::F32 || product.dtype != DType::F32 {
            return None;
        }
        let [a, b] = binary(graph, weighted.node, BinaryOp::Mul)?;
        let is_product = |edge: &Edge| graph.nodes[edge.node].primitive.operation::<ExpertMatmul>().is_some();
        let [each, weights] = [[a, b], [b, a]].into_iter().find(|[each, _]| is_product(each))?;
        let is_whole = same_elements(&each.layout, &whole) && graph.nodes[each.node].shape == sizes;
        if !is_whole || weights.layout.strides[axis + 1] != 0 {
            return None;
        }
        let layout = Layout {
            shape: Dimensions::from_slice(&product.shape[..=axis]),
            strides: Dimensions::from_slice(&weights.layout.strides[..=axis]),
            offset: weights.layout.offset,
        };
        let weights = weights.through(layout.reshape(&sizes[..2])?);
        Some(WeightedSum { each, weights, sizes })
    }
}

/// Matches a weighted sum that fuses with its product with the experts.
fn summed(graph: &Graph, uses: &[usize], number: usize) -> Option<ExpertRewrite> {
    let WeightedSum { each, weights, sizes } = WeightedSum::of(graph, uses, number)?;
    let [tokens, used, rows] = sizes;
    let product = ExpertProduct::of(graph, uses, each, 1).filter(|_| tokens <= MAX_GEMV_TOKENS)?;
    let [.., columns] = product.sizes;
    let x = product.x.through(product.x.layout.reshape(&[tokens * used, columns])?);
    let scores = scores_of(graph, &weights, product.experts);
    let routed = if scores.is_some() {
        Routed::Scored
    } else {
        Routed::Weighted
    };
    let mut inputs = vec![x, product.experts.clone(), scores.unwrap_or(weights)];
    inputs.extend(product.planes.iter().cloned());
    let projection = ExpertProjection {
        norm: None,
        section: Section::plain(product.weights, DType::F32),
        routed,
        between: rows,
    };
    Some(ExpertRewrite {
        projection,
        inputs,
        shape: [tokens, rows],
        dtype: DType::F32,
    })
}

/// Matches a weighted sum and returns it as one node.
fn sum_node(graph: &Graph, uses: &[usize], number: usize, device: &Device) -> Option<Node> {
    let WeightedSum { each, weights, sizes } = WeightedSum::of(graph, uses, number)?;
    let experts = &graph.nodes[each.node].inputs[1];
    let scores = scores_of(graph, &weights, experts);
    let scored = scores.is_some();
    let primitive = Primitive::Operation(Arc::new(ExpertSum { scored }));
    let each = each.through(Layout::contiguous(&sizes));
    let inputs = match scores {
        Some(scores) => vec![each, scores, experts.clone()],
        None => vec![each, weights],
    };
    let node = Node::new(primitive, inputs, vec![sizes[0], sizes[2]], DType::F32);
    computes(graph, &node, device).then_some(node)
}

/// Matches an elementwise node that is the only user of a fused weighted sum.
fn with_epilogue(graph: &Graph, uses: &[usize], number: usize) -> Option<ExpertRewrite> {
    let node = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    let input = (0..node.inputs.len()).find(|&input| {
        let source = &graph.nodes[node.inputs[input].node];
        let fused = source.primitive.operation::<FusedExperts>();
        let plain = fused
            .is_some_and(|FusedExperts { projection: p, .. }| p.routed != Routed::PerExpert && p.section.is_plain());
        let edge = &node.inputs[input];
        plain && uses[edge.node] == 1 && edge.layout.count() == source.layout.count() && edge.layout.is_contiguous()
    })?;
    let source = &graph.nodes[node.inputs[input].node];
    let FusedExperts { projection, .. } = source.primitive.operation()?;
    let shape = [source.shape[0], source.shape[1]];
    let (others, epilogue) = split_inputs(node, expression, &[input], &shape)?;
    let mut projection = projection.clone();
    projection.section.epilogue = epilogue;
    let inputs = source.inputs.iter().cloned().chain(others).collect();
    Some(ExpertRewrite {
        projection,
        inputs,
        shape,
        dtype: node.dtype,
    })
}

/// Returns an elementwise node's inputs other than `first`, reshaped to `shape`, and its expression with inputs `first`
/// moved to the front.
fn split_inputs(
    node: &Node,
    expression: &Expression,
    first: &[usize],
    shape: &[usize],
) -> Option<(Vec<Edge>, Expression)> {
    let others: Vec<usize> = (0..node.inputs.len()).filter(|n| !first.contains(n)).collect();
    let order: Vec<usize> = first.iter().chain(&others).copied().collect();
    let edges = others.iter().map(|&other| {
        let edge = &node.inputs[other];
        Some(edge.through(edge.layout.reshape(shape)?))
    });
    Some((edges.collect::<Option<_>>()?, reordered(expression, &order)))
}

/// Returns the operands of an elementwise node that applies `wanted` to two f32 inputs.
fn binary(graph: &Graph, number: usize, wanted: BinaryOp) -> Option<[&Edge; 2]> {
    let node = &graph.nodes[number];
    let (Primitive::Elementwise(expression), [a, b]) = (&node.primitive, &node.inputs[..]) else {
        return None;
    };
    let &[
        ExpressionStep::Input(first),
        ExpressionStep::Input(second),
        ExpressionStep::Binary(op, x, y),
    ] = &expression.steps[..]
    else {
        return None;
    };
    let f32s = expression.inputs == [DType::F32; 2];
    let edges = [a, b];
    let ordered = [[first, second][x], [first, second][y]].map(|input| edges[input]);
    (f32s && op == wanted && x != y && first != second).then_some(ordered)
}

/// Matches renormalised router weights `[T, U]`: a softmax over all experts, of which those of `experts` are taken and
/// divided by their sum. Returns the scores `[T, E]`.
fn scores_of(graph: &Graph, weights: &Edge, experts: &Edge) -> Option<Edge> {
    let [taken, sum] = binary(graph, weights.node, BinaryOp::Div)?;
    let whole = |edge: &Edge| edge.layout == graph.nodes[edge.node].layout;
    let total = &graph.nodes[sum.node];
    let is_sum = total.primitive.operation() == Some(&SUM);
    let of_each = sum.layout.strides.last() == Some(&0) || taken.layout.shape.last() == Some(&1);
    let source = &graph.nodes[taken.node];
    let (Some(TakeAlong), [all, chosen]) = (source.primitive.operation(), &source.inputs[..]) else {
        return None;
    };
    let fits = is_sum && of_each && total.inputs[0] == *taken && whole(taken) && in_same_order(chosen, experts);
    if !fits || !graph.is_whole(weights) {
        return None;
    }
    let scores = softmax_of(graph, all)?;
    let &[tokens, _] = &weights.layout.shape[..] else {
        return None;
    };
    let &each = scores.layout.shape.last()?;
    Some(scores.through(scores.layout.reshape(&[tokens, each])?))
}

/// Whether both read the same elements in the same order. One may have further dimensions, such as a batch.
fn in_same_order(a: &Edge, b: &Edge) -> bool {
    let seen = b.layout.reshape(&a.layout.shape);
    a.source() == b.source() && seen.is_some_and(|seen| same_elements(&seen, &a.layout))
}

/// A fused product with experts that may replace a node.
struct ExpertRewrite {
    projection: ExpertProjection,
    inputs: Vec<Edge>,
    shape: [usize; 2],
    dtype: DType,
}

impl ExpertRewrite {
    /// Returns the node, if the kernels support the operands' layouts.
    fn node(self, graph: &Graph, device: &Device) -> Option<Node> {
        let can_move = !self.inputs.iter().any(|edge| graph.is_state(edge));
        let (shape, dtype) = (self.shape, self.dtype);
        let experts = FusedExperts {
            projection: self.projection,
            shape,
            dtype,
        };
        let primitive = Primitive::Operation(Arc::new(experts));
        let node = Node::new(primitive, self.inputs, shape.to_vec(), dtype);
        (can_move && computes(graph, &node, device)).then_some(node)
    }
}
