//! Products with the experts of few tokens: with the elementwise node that uses them (an activation times a gate),
//! or weighted and added up over a token's experts, with what that sum is then added to. Of many tokens the weighted sum.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{Reduce, Softmax, TakeAlong, TopK};
use refrain::rewrite::{computes, reordered, rows as sliced, same_places};
use refrain::{DType, Device, Dimensions, Layout, Primitive};
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep};
use refrain_kernels::projection::{ExpertProjection, Routed, Section, WeightStorage};
use refrain_kernels::reduce::ReduceOp;

use super::ExpertMatmul;
use super::projection::JoinedExperts;
use super::sum::ExpertSum;

/// The sum over the last dimension.
const SUM: Reduce = Reduce {
    op: ReduceOp::Sum,
    axes: 1,
};
/// The most tokens: experts of more are read once for all.
const MOST_TOKENS: usize = 8;
/// The most matrices whose sums one epilogue joins.
const MOST_PARTS: usize = 2;

/// Makes products with experts a part of what alone uses them.
pub(super) fn join(mut graph: Graph, device: &Device) -> Graph {
    unscale(&mut graph);
    let mut uses = graph.use_counts();
    for number in 0..graph.nodes.len() {
        let found = (apart(&graph, &uses, number))
            .or_else(|| summed(&graph, &uses, number))
            .or_else(|| extended(&graph, &uses, number));
        let node = found.and_then(|found| found.node(&graph, device));
        if let Some(node) = node.or_else(|| added(&graph, &uses, number, device)) {
            node.inputs.iter().for_each(|e| uses[e.node] += 1);
            graph.nodes[number] = node;
        }
    }
    graph
}

/// The largest of a softmax are those of what it is made of.
fn unscale(graph: &mut Graph) {
    for number in 0..graph.nodes.len() {
        let Node { primitive, inputs, .. } = &graph.nodes[number];
        if let (Some(TopK { values: false, .. }), [scores]) = (primitive.operation(), &inputs[..])
            && let Some(raw) = softmax_of(graph, scores)
        {
            graph.nodes[number].inputs = vec![raw];
        }
    }
}

/// What `edge` is the whole softmax of.
fn softmax_of(graph: &Graph, edge: &Edge) -> Option<Edge> {
    let node = &graph.nodes[edge.node];
    let whole = edge.layout == node.written && node.dtype == DType::F32;
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

/// A use of a product: which input it is, and which of an expert's rows it sees.
struct ExpertUse<'g> {
    input: usize,
    product: ExpertProduct<'g>,
    first: usize,
}

impl<'g> ExpertProduct<'g> {
    /// The product that `edge` sees whole and `reads` times, if nothing else does.
    fn of(graph: &'g Graph, uses: &[usize], edge: &Edge, reads: usize) -> Option<ExpertProduct<'g>> {
        let node = &graph.nodes[edge.node];
        let ExpertMatmul { format, .. } = *node.primitive.operation()?;
        let [x, experts, planes @ ..] = &node.inputs[..] else {
            return None;
        };
        let (&[tokens, used, rows], &[.., columns]) = (&node.shape[..], &x.layout.shape[..]) else {
            return None;
        };
        let alone = uses[edge.node] == reads && node.written.is_contiguous() && node.dtype == DType::F32;
        let moves = !node.inputs.iter().any(|edge| graph.is_state(edge));
        (alone && moves && (1..=MOST_TOKENS).contains(&tokens)).then_some(ExpertProduct {
            x,
            experts,
            planes,
            weights: format.map_or(WeightStorage::Dense, WeightStorage::Quantised),
            sizes: [tokens, used, rows, columns],
        })
    }

    /// x `[T, K]`, if a token's experts are given the same.
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

/// An elementwise node over what the experts of each token give.
fn apart(graph: &Graph, uses: &[usize], number: usize) -> Option<Found> {
    let node = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    let &[tokens, used, rows] = &node.shape[..] else {
        return None;
    };
    let seen = |input: usize| {
        let edge = &node.inputs[input];
        let reads = node.inputs.iter().filter(|e| e.node == edge.node).count();
        let product = ExpertProduct::of(graph, uses, edge, reads)?;
        let all = product.sizes[2];
        let first = edge.layout.offset;
        let wanted = Layout {
            shape: node.shape.clone().into(),
            strides: vec![used * all, all, 1].into(),
            offset: first,
        };
        (first + rows <= all && same_places(&edge.layout, &wanted)).then_some(ExpertUse { input, product, first })
    };
    let mut found: Vec<ExpertUse<'_>> = (0..node.inputs.len()).filter_map(seen).collect();
    let like = &found.first()?.product;
    let (x, experts, weights, between) = (like.x, like.experts, like.weights, like.sizes[2]);
    found.retain(|ExpertUse { product: p, .. }| {
        p.x == x && p.experts == experts && p.weights == weights && p.sizes[2] == between
    });
    found.truncate(MOST_PARTS);
    let parts: Vec<usize> = found.iter().map(|used| used.input).collect();
    let mut inputs = vec![found[0].product.shared_x()?, experts.clone()];
    for ExpertUse { product, first, .. } in &found {
        inputs.extend(product.planes.iter().map(|plane| {
            let count = plane.layout.shape[0] - (between - rows);
            sliced(plane, *first, count)
        }));
    }
    let (others, epilogue) = split(node, expression, &parts, &[tokens * used, rows])?;
    inputs.extend(others);
    let projection = ExpertProjection {
        norm: None,
        section: Section {
            parts: vec![weights; parts.len()],
            epilogue,
        },
        routed: Routed::Apart,
        between,
    };
    Some(Found {
        projection,
        inputs,
        shape: [tokens * used, rows],
        dtype: node.dtype,
    })
}

/// A sum over a token's experts of what each gives, weighted.
struct WeightedSum<'g> {
    /// What they give, `[T, U, N]`, whole.
    each: &'g Edge,
    /// `[T, U]`.
    weights: Edge,
    /// T, U and N.
    sizes: [usize; 3],
}

impl<'g> WeightedSum<'g> {
    /// Node `number`, if it is one of which nothing else uses a part.
    fn of(graph: &'g Graph, uses: &[usize], number: usize) -> Option<WeightedSum<'g>> {
        let node = &graph.nodes[number];
        if node.primitive.operation() != Some(&SUM) {
            return None;
        }
        let weighted = &node.inputs[0];
        let product = &graph.nodes[weighted.node];
        let &[tokens, used, rows] = &product.shape[..] else {
            return None;
        };
        let over_experts = weighted.layout == Layout::contiguous(&product.shape).permute(&[0, 2, 1]);
        if !over_experts || uses[weighted.node] != 1 || node.dtype != DType::F32 || product.dtype != DType::F32 {
            return None;
        }
        let [a, b] = binary(graph, weighted.node, BinaryOp::Mul)?;
        let gives = |edge: &Edge| graph.nodes[edge.node].primitive.operation::<ExpertMatmul>().is_some();
        let [each, weights] = [[a, b], [b, a]].into_iter().find(|[each, _]| gives(each))?;
        if each.layout != Layout::contiguous(&product.shape) || weights.layout.strides[2] != 0 {
            return None;
        }
        let weights = weights.through(Layout {
            shape: vec![tokens, used].into(),
            strides: Dimensions::from_slice(&weights.layout.strides[..2]),
            offset: weights.layout.offset,
        });
        Some(WeightedSum {
            each,
            weights,
            sizes: [tokens, used, rows],
        })
    }
}

/// Such a sum, as a part of the product with the experts.
fn summed(graph: &Graph, uses: &[usize], number: usize) -> Option<Found> {
    let WeightedSum { each, weights, sizes } = WeightedSum::of(graph, uses, number)?;
    let [tokens, used, rows] = sizes;
    let found = ExpertProduct::of(graph, uses, each, 1)?;
    let [.., columns] = found.sizes;
    let x = found.x.through(found.x.layout.reshape(&[tokens * used, columns])?);
    let scores = scores_of(graph, &weights, found.experts);
    let routed = if scores.is_some() {
        Routed::Scored
    } else {
        Routed::Weighted
    };
    let mut inputs = vec![x, found.experts.clone(), scores.unwrap_or(weights)];
    inputs.extend(found.planes.iter().cloned());
    let projection = ExpertProjection {
        norm: None,
        section: Section::plain(found.weights, DType::F32),
        routed,
        between: rows,
    };
    Some(Found {
        projection,
        inputs,
        shape: [tokens, rows],
        dtype: DType::F32,
    })
}

/// Such a sum by itself.
fn added(graph: &Graph, uses: &[usize], number: usize, device: &Device) -> Option<Node> {
    let WeightedSum { each, weights, sizes } = WeightedSum::of(graph, uses, number)?;
    let primitive = Primitive::Operation(Arc::new(ExpertSum));
    let inputs = vec![each.clone(), weights];
    let node = Node::new(primitive, inputs, vec![sizes[0], sizes[2]], DType::F32);
    computes(graph, &node, device).then_some(node)
}

/// An elementwise node over such a sum, which alone uses it.
fn extended(graph: &Graph, uses: &[usize], number: usize) -> Option<Found> {
    let node = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    let input = (0..node.inputs.len()).find(|&input| {
        let source = &graph.nodes[node.inputs[input].node];
        let joined = source.primitive.operation::<JoinedExperts>();
        let plain =
            joined.is_some_and(|JoinedExperts { projection: p, .. }| p.routed != Routed::Apart && p.section.is_plain());
        let edge = &node.inputs[input];
        plain && uses[edge.node] == 1 && edge.layout.count() == source.written.count() && edge.layout.is_contiguous()
    })?;
    let source = &graph.nodes[node.inputs[input].node];
    let JoinedExperts { projection, .. } = source.primitive.operation()?;
    let shape = [source.shape[0], source.shape[1]];
    let (others, epilogue) = split(node, expression, &[input], &shape)?;
    let mut projection = projection.clone();
    projection.section.epilogue = epilogue;
    let inputs = source.inputs.iter().cloned().chain(others).collect();
    Some(Found {
        projection,
        inputs,
        shape,
        dtype: node.dtype,
    })
}

/// The inputs of an elementwise node but for `first`, seen as `shape`, and its expression with `first` before them.
fn split(node: &Node, expression: &Expression, first: &[usize], shape: &[usize]) -> Option<(Vec<Edge>, Expression)> {
    let others: Vec<usize> = (0..node.inputs.len()).filter(|n| !first.contains(n)).collect();
    let order: Vec<usize> = first.iter().chain(&others).copied().collect();
    let edges = others.iter().map(|&other| {
        let edge = &node.inputs[other];
        Some(edge.through(edge.layout.reshape(shape)?))
    });
    Some((edges.collect::<Option<_>>()?, reordered(expression, &order)))
}

/// The operands of a node that is such an operation on two others.
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

/// The scores `[T, E]` of which `weights` `[T, U]` are the softmax over the experts that are used: a softmax over
/// all, of which those are taken and divided by their sum.
fn scores_of(graph: &Graph, weights: &Edge, experts: &Edge) -> Option<Edge> {
    let [taken, sum] = binary(graph, weights.node, BinaryOp::Div)?;
    let whole = |edge: &Edge| edge.layout == graph.nodes[edge.node].written;
    let total = &graph.nodes[sum.node];
    let is_sum = total.primitive.operation() == Some(&SUM);
    let of_each = sum.layout.strides.last() == Some(&0) || taken.layout.shape.last() == Some(&1);
    let source = &graph.nodes[taken.node];
    let (Some(TakeAlong), [all, chosen]) = (source.primitive.operation(), &source.inputs[..]) else {
        return None;
    };
    let fits = is_sum && of_each && total.inputs[0] == *taken && whole(taken) && chosen == experts;
    let contiguous = weights.layout == graph.nodes[weights.node].written;
    (fits && contiguous).then(|| softmax_of(graph, all))?
}

/// A product with experts that may take the place of a node.
struct Found {
    projection: ExpertProjection,
    inputs: Vec<Edge>,
    shape: [usize; 2],
    dtype: DType,
}

impl Found {
    /// The node, where the kernels take the operands as they lie.
    fn node(self, graph: &Graph, device: &Device) -> Option<Node> {
        let moves = !self.inputs.iter().any(|edge| graph.is_state(edge));
        let (shape, dtype) = (self.shape, self.dtype);
        let joined = JoinedExperts {
            projection: self.projection,
            shape,
            dtype,
        };
        let primitive = Primitive::Operation(Arc::new(joined));
        let node = Node::new(primitive, self.inputs, shape.to_vec(), dtype);
        (moves && computes(graph, &node, device)).then_some(node)
    }
}
