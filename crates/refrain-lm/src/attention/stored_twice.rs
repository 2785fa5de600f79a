//! Heads that are rounded twice become one step: keys and values that a cache begins with are stored as the cache has them,
//! head by head, and as attention takes them, token by token.

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, SliceUpdateInPlace};
use refrain::rewrite::{Replacement, computes, replace, same_elements};
use refrain::{DType, Device, Layout, Primitive};
use refrain_kernels::attention::heads::HeadParams;
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar};

use super::heads::{HALF_RANGE, HeadResult, UNCHANGED, made_by, prepared};

/// Joins pairs of roundings with each other, and with the norm and RoPE before them.
pub(super) fn fuse(graph: Graph, device: &Device) -> Graph {
    let (uses, users) = (graph.use_counts(), graph.users());
    let mut found: Vec<Option<Replacement>> = graph.nodes.iter().map(|_| None).collect();
    let mut is_joined = vec![false; graph.nodes.len()];
    for pair in users.iter().flat_map(|users| StoredTwice::of(&graph, &uses, users)) {
        let numbers = pair.roundings.each_ref().map(|(rounding, _)| rounding.number);
        let is_free = numbers.iter().all(|number| !is_joined[*number]);
        if let Some(replacement) = is_free.then(|| pair.replacement(&graph, &uses, device)).flatten() {
            numbers.iter().for_each(|number| is_joined[*number] = true);
            found[numbers[0].min(numbers[1])] = Some(replacement);
        }
    }
    replace(graph, found)
}

/// A node that rounds heads in f32 to half precision.
struct Rounding {
    number: usize,
    /// The heads.
    read: Edge,
    /// Whether they are first bounded to the range of f16.
    is_bounded: bool,
    /// The node whose zeros they replace from the beginning on, if they are written into a cache that has more tokens.
    zeros: Option<usize>,
}

impl Rounding {
    /// What node `number` rounds, if it does nothing else.
    fn of(graph: &Graph, uses: &[usize], number: usize) -> Option<Rounding> {
        let node = &graph.nodes[number];
        let (read, is_bounded, zeros) = match (&node.primitive, &node.inputs[..]) {
            (Primitive::Elementwise(expression), [x]) => (x, is_bounded(expression)?, None),
            (primitive, [state, part]) => {
                let update: &SliceUpdateInPlace = primitive.operation()?;
                let is_new = uses[state.node] == 1 && graph.is_whole(state) && is_zeros(&graph.nodes[state.node]);
                let shape = &part.layout.shape;
                let is_beginning = update.replaces_beginning(shape) && has_fewer_tokens(shape, &node.shape);
                (is_new && is_beginning).then_some((part, false, Some(state.node)))?
            }
            _ => return None,
        };
        let is_half = matches!(node.dtype, DType::F16 | DType::BF16);
        let is_all = zeros.is_some() || read.layout.count() == node.layout.count();
        let fits = is_half && is_all && graph.dtype(read) == DType::F32 && node.layout.is_contiguous();
        fits.then(|| Rounding {
            number,
            read: read.clone(),
            is_bounded,
            zeros,
        })
    }

    /// Whether it reads `heads` `[T, H, D]` head by head; `None` if it reads anything else.
    fn order_of(&self, heads: &Edge) -> Option<bool> {
        let (layout, &[tokens, count, dim]) = (&self.read.layout, &heads.layout.shape[..]) else {
            return None;
        };
        let is_same = |layout: Option<Layout>| layout.is_some_and(|layout| same_elements(&layout, &heads.layout));
        let by_head = layout
            .reshape(&[count, tokens, dim])
            .map(|layout| layout.permute(&[1, 0, 2]));
        let by_token = layout.reshape(&[tokens, count, dim]);
        let order = if is_same(by_head) {
            true
        } else {
            is_same(by_token).then_some(false)?
        };
        // Only tokens may follow in a cache.
        let is_cache = order && layout.shape.ends_with(&[count, tokens, dim]);
        (self.read.source() == heads.source() && (self.zeros.is_none() || is_cache)).then_some(order)
    }
}

/// Heads in f32 that are rounded twice: for a cache, and to f16 token by token.
struct StoredTwice {
    /// The heads `[T, H, D]`.
    heads: Edge,
    /// What rounds them, and whether each goes head by head.
    roundings: [(Rounding, bool); 2],
}

impl StoredTwice {
    /// Finds those whose heads are among the results of a node that `users` read.
    fn of(graph: &Graph, uses: &[usize], users: &[usize]) -> Vec<StoredTwice> {
        let is_half = |user: &usize| graph.nodes[*user].dtype == DType::F16;
        let pair = |half: usize| {
            let rounding = Rounding::of(graph, uses, half).filter(|rounding| rounding.zeros.is_none())?;
            let [.., tokens, heads, dim] = rounding.read.layout.shape[..] else {
                return None;
            };
            let heads = rounding
                .read
                .through(rounding.read.layout.reshape(&[tokens, heads, dim])?);
            let other = users.iter().filter(|user| **user != half).find_map(|user| {
                let rounding = Rounding::of(graph, uses, *user)?;
                let order = rounding.order_of(&heads)?;
                Some((rounding, order))
            });
            let roundings = [other?, (rounding, false)];
            Some(StoredTwice { heads, roundings })
        };
        if users.len() < 2 {
            return vec![];
        }
        users.iter().copied().filter(is_half).filter_map(pair).collect()
    }

    /// Returns the node in place of the first of those that round.
    fn replacement(&self, graph: &Graph, uses: &[usize], device: &Device) -> Option<Replacement> {
        let [(other, _), (half, _)] = &self.roundings;
        let is_bounded_alike = graph.nodes[other.number].dtype != DType::F16 || other.is_bounded == half.is_bounded;
        if !is_bounded_alike || graph.is_state(&self.heads) {
            return None;
        }
        let results = self.roundings.each_ref().map(|(rounding, by_head)| HeadResult {
            spec: ArraySpec::new(&graph.nodes[rounding.number].shape, graph.nodes[rounding.number].dtype),
            by_head: *by_head,
        });
        // What makes the heads is part of it, if nothing else reads them.
        let is_read_alone = uses[self.heads.node] == 2 && graph.is_whole(&self.heads);
        let made = is_read_alone.then(|| made_by(&graph.nodes[self.heads.node])).flatten();
        let mut dropped = vec![other.number.max(half.number)];
        dropped.extend(other.zeros);
        dropped.extend(made.is_some().then_some(self.heads.node));
        let (params, inputs) = made.unwrap_or((UNCHANGED, vec![self.heads.clone()]));
        let params = HeadParams {
            twice: true,
            bounded: half.is_bounded,
            ..params
        };
        let node = prepared(params, results.to_vec(), inputs);
        computes(graph, &node, device).then(|| Replacement {
            node,
            dropped,
            next: vec![((other.number, 0), 0), ((half.number, 0), 1)],
            absorbed: None,
        })
    }
}

/// Whether an expression bounds its input to the range of f16 before it casts it; `None` if it does anything else.
fn is_bounded(expression: &Expression) -> Option<bool> {
    let step = |number: usize| &expression.steps[number];
    let is = |number: usize, bound: f32| matches!(step(number), ExpressionStep::Constant { value: Scalar::F32(value), .. } if *value == bound);
    let &ExpressionStep::Cast(value, _) = expression.steps.last()? else {
        return None;
    };
    let [least, most] = HALF_RANGE;
    match *step(value) {
        ExpressionStep::Input(_) => Some(false),
        ExpressionStep::Binary(BinaryOp::Min, above, high) if is(high, most) => match *step(above) {
            ExpressionStep::Binary(BinaryOp::Max, x, low) if is(low, least) => {
                matches!(step(x), ExpressionStep::Input(_)).then_some(true)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether two shapes `[.., T, D]` differ in their tokens at most.
fn has_fewer_tokens(part: &[usize], whole: &[usize]) -> bool {
    let is_alike = |d: usize| part[d] == whole[d] || d + 2 == whole.len();
    part.len() == whole.len() && (0..whole.len()).all(is_alike)
}

/// Whether all elements of a node's result are zero.
fn is_zeros(node: &Node) -> bool {
    let is_zero = |step: &ExpressionStep| match step {
        ExpressionStep::Constant { value, .. } => matches!(value, Scalar::F32(value) if value.to_bits() == 0),
        step => matches!(step, ExpressionStep::Cast(..)),
    };
    match &node.primitive {
        Primitive::Elementwise(expression) => node.inputs.is_empty() && expression.steps.iter().all(is_zero),
        _ => false,
    }
}
