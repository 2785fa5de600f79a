//! Leaves out roundings to half precision between the operations of a program.
//!
//! MLX rounds the result of each operation to its dtype. Kernels for inference compute in f32 and join norms, products
//! and activations, which a rounding in between forbids. So results in half precision that stay inside a program become
//! f32. What a program returns or writes into a cache is rounded as before. Results are closer to f32's than MLX's are.

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{ArraySpec, SliceUpdateInPlace, WriteRows};
use refrain::{DType, Device, Layout, Primitive};
use refrain_kernels::elementwise::{Expression, ExpressionStep};

use super::{Rounded, is_half, sigmoid};

/// Maximum number of elements of a softmax that becomes one of f32. Larger ones are the scores of prompts, whose memory
/// would double.
const MAX_WIDE_SOFTMAX: usize = 1 << 22;

/// A result: its node and its number among the node's results.
type Source = (usize, usize);

/// The same graph with results in f32 where it had half precision.
pub(super) fn run(graph: Graph, _device: &Device) -> Graph {
    let outputs = graph.outputs.clone();
    let mut is_returned = vec![false; graph.nodes.len()];
    outputs.iter().for_each(|edge| is_returned[edge.node] = true);
    let mut widener = Widener {
        wanted: wanted(&graph),
        is_returned,
        old: &graph,
        nodes: Vec::with_capacity(graph.nodes.len()),
        made: Vec::with_capacity(graph.nodes.len()),
    };
    for number in 0..graph.nodes.len() {
        widener.add(number);
    }
    let outputs = outputs.iter().map(|edge| widener.exact(edge)).collect();
    Graph {
        nodes: widener.nodes,
        outputs,
    }
}

/// Whether node `user` may read its input `number`, of half precision, in f32.
fn takes_wide(graph: &Graph, user: usize, number: usize) -> bool {
    let node = &graph.nodes[user];
    match &node.primitive {
        Primitive::Elementwise(_) => true,
        Primitive::Operation(operation) if operation.updates().is_empty() => {
            let is_weight = |edge: &Edge| graph.nodes[edge.node].primitive.is_leaf() && edge.layout.rank() == 2;
            let is_taken = match operation.name() {
                // The product with anything but a weight has matrix cores in half precision only.
                "matmul" => number == 0 && is_weight(&node.inputs[1]),
                super::AS_ROUNDED => false,
                // Keys and values are read as they are stored.
                "paged_attention" => number == 0,
                "softmax" => node.layout.count() <= MAX_WIDE_SOFTMAX,
                _ => true,
            };
            is_taken && widened_results(graph, node).is_some()
        }
        Primitive::Operation(_) => is_write(&node.primitive) && number == 1,
        _ => false,
    }
}

/// Whether a primitive writes its second input, converted, into its first one.
fn is_write(primitive: &Primitive) -> bool {
    primitive.operation::<WriteRows>().is_some() || primitive.operation::<SliceUpdateInPlace>().is_some()
}

/// The results of an operation that reads in f32 what is not a leaf; `None` if it does not take that.
fn widened_results(graph: &Graph, node: &Node) -> Option<Vec<ArraySpec>> {
    let specs: Vec<ArraySpec> = node.inputs.iter().map(|edge| widened_spec(graph, edge)).collect();
    results(node, &specs)
}

/// What an edge reads, in f32 if that is the result of a computation in half precision.
fn widened_spec(graph: &Graph, edge: &Edge) -> ArraySpec {
    let dtype = graph.dtype(edge);
    let is_computed = is_half(dtype) && !graph.nodes[edge.node].primitive.is_leaf() && !graph.is_state(edge);
    ArraySpec::new(&edge.layout.shape, if is_computed { DType::F32 } else { dtype })
}

/// The results of an operation for other dtypes of its inputs, if their shapes stay, and no more changes than f32
/// instead of half precision.
fn results(node: &Node, inputs: &[ArraySpec]) -> Option<Vec<ArraySpec>> {
    let Primitive::Operation(operation) = &node.primitive else {
        return None;
    };
    let specs: Vec<&ArraySpec> = inputs.iter().collect();
    let results = operation.results(&specs).ok()?;
    let first = [(&node.shape[..], node.dtype)];
    let others = node.extra_results.iter().map(|spec| (&spec.shape[..], spec.dtype));
    let before: Vec<(&[usize], DType)> = first.into_iter().chain(others).collect();
    let fits = |(spec, (shape, dtype)): (&ArraySpec, &(&[usize], DType))| {
        spec.shape[..] == **shape && (spec.dtype == *dtype || (is_half(*dtype) && spec.dtype == DType::F32))
    };
    (results.len() == before.len() && results.iter().zip(&before).all(fits)).then_some(results)
}

/// For each node, whether something reads its results in f32.
fn wanted(graph: &Graph) -> Vec<bool> {
    let mut wanted = vec![false; graph.nodes.len()];
    for (user, node) in graph.nodes.iter().enumerate() {
        for (number, edge) in node.inputs.iter().enumerate() {
            wanted[edge.node] |= takes_wide(graph, user, number);
        }
    }
    wanted
}

/// What stands for a result of the old graph.
#[derive(Clone, Default)]
struct Made {
    /// The result in its own dtype.
    exact: Option<Source>,
    /// The result in f32, if it has half precision in the old graph.
    wide: Option<Source>,
    /// The result's elements in f32 where they lie in another order, if there is no copy of them in theirs.
    reordered: Option<Edge>,
}

struct Widener<'g> {
    old: &'g Graph,
    wanted: Vec<bool>,
    /// For each old node, whether the program returns a result of it.
    is_returned: Vec<bool>,
    nodes: Vec<Node>,
    /// By old node and result.
    made: Vec<Vec<Made>>,
}

impl Widener<'_> {
    /// Adds what stands for an old node.
    fn add(&mut self, number: usize) {
        let node = &self.old.nodes[number];
        self.made.push(vec![Made::default(); node.results()]);
        let has_half = (0..node.results()).any(|result| is_half(node.dtype_of(result)));
        let wide = match &node.primitive {
            Primitive::Operation(_) if node.primitive.operation::<Rounded>().is_some() => {
                let x = self.exact(&node.inputs[0]);
                self.alias_or_copy(x, node)
            }
            Primitive::Elementwise(expression) if has_half && self.wanted[number] => {
                self.made[number][0].reordered = self.reordered(number);
                match self.made[number][0].reordered {
                    Some(_) => None,
                    None => self.elementwise(node, expression),
                }
            }
            Primitive::Elementwise(expression) if node.dtype == DType::F32 => self.without_cast(node, expression),
            Primitive::Operation(operation) if operation.updates().is_empty() && (self.wanted[number] || !has_half) => {
                self.operation(number)
            }
            _ => None,
        };
        match wide {
            Some((made, first)) => {
                for (result, slot) in self.made[number].iter_mut().enumerate() {
                    let source = Some((made, first + result));
                    if is_half(node.dtype_of(result)) {
                        slot.wide = source;
                    } else {
                        slot.exact = source;
                    }
                }
            }
            None => {
                let made = self.copied(number);
                for (result, slot) in self.made[number].iter_mut().enumerate() {
                    slot.exact = Some((made, result));
                }
            }
        }
    }

    /// The node with its own dtypes, over the inputs in theirs. Elementwise nodes and writes read f32 where there is.
    fn copied(&mut self, number: usize) -> usize {
        let mut node = self.old.nodes[number].clone();
        match &node.primitive {
            Primitive::Elementwise(expression) => {
                let (expression, inputs) = self.reading_wide(expression, &node.inputs);
                let dtypes = expression.dtypes().expect("it was valid before");
                let mut expression = expression;
                if dtypes.last() != Some(&node.dtype) {
                    expression
                        .steps
                        .push(ExpressionStep::Cast(expression.steps.len() - 1, node.dtype));
                }
                node.primitive = Primitive::Elementwise(expression);
                node.inputs = inputs;
            }
            primitive => {
                let is_write = is_write(primitive);
                let edges = std::mem::take(&mut node.inputs);
                let edges = edges.iter().enumerate();
                node.inputs = edges
                    .map(
                        |(input, edge)| match self.wide(edge).filter(|_| is_write && input == 1) {
                            Some(wide) => wide,
                            None => self.exact(edge),
                        },
                    )
                    .collect();
            }
        }
        self.push(node)
    }

    fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The edge that reads the same result in f32, if there is one.
    fn wide(&self, edge: &Edge) -> Option<Edge> {
        let (node, result) = self.made[edge.node][edge.result].wide?;
        Some(Edge {
            node,
            result,
            layout: edge.layout.clone(),
        })
    }

    /// The edge that reads the same result in its own dtype.
    fn exact(&mut self, edge: &Edge) -> Edge {
        let Made { exact, wide, .. } = self.made[edge.node][edge.result];
        let (node, result) = match (exact, wide) {
            (Some(source), _) => source,
            (None, Some((wide, result))) => {
                let (dtype, layout) = (self.old.dtype(edge), self.nodes[wide].layout_of(result));
                let shape = layout.shape.to_vec();
                let from = Edge {
                    node: wide,
                    result,
                    layout,
                };
                let cast = Primitive::Elementwise(Expression::cast(DType::F32, dtype));
                let source = (self.push(Node::new(cast, vec![from], shape, dtype)), 0);
                self.made[edge.node][edge.result].exact = Some(source);
                source
            }
            (None, None) => unreachable!("each result stands for something"),
        };
        Edge {
            node,
            result,
            layout: edge.layout.clone(),
        }
    }

    /// What an edge reads in f32 as the result of `node`: the source itself if `node` has its elements in their order. A
    /// state is copied, because it may change before it is read.
    fn alias_or_copy(&mut self, edge: Edge, node: &Node) -> Option<Source> {
        let source = &self.nodes[edge.node];
        let whole = edge.layout.is_contiguous() && edge.layout.offset == 0 && edge.layout.count() > 0;
        if whole && !self.is_state(&edge) && source.layout_of(edge.result).is_contiguous() {
            return Some(edge.source());
        }
        let copy = Primitive::Elementwise(Expression::cast(DType::F32, DType::F32));
        Some((
            self.push(Node::new(copy, vec![edge], node.shape.clone(), DType::F32)),
            0,
        ))
    }

    /// Whether a new edge reads memory that may change.
    fn is_state(&self, edge: &Edge) -> bool {
        let source = &self.nodes[edge.node];
        match &source.primitive {
            Primitive::Stored { class, .. } => class.is_state(),
            _ => source.updated(edge.result).is_some(),
        }
    }

    /// What stands for a cast from half precision to f32 of what is f32 now; `None` for other expressions.
    fn without_cast(&mut self, node: &Node, expression: &Expression) -> Option<Source> {
        let [ExpressionStep::Input(0), ExpressionStep::Cast(0, DType::F32)] = expression.steps[..] else {
            return None;
        };
        let wide = self.wide(&node.inputs[0])?;
        self.alias_or_copy(wide, node)
    }

    /// A node over f32 where there is.
    fn elementwise(&mut self, node: &Node, expression: &Expression) -> Option<Source> {
        let (expression, inputs) = self.reading_wide(expression, &node.inputs);
        if let ([ExpressionStep::Input(0)], [edge]) = (&expression.steps[..], &inputs[..]) {
            return self.alias_or_copy(edge.clone(), node);
        }
        let node = Node {
            layout: Layout::contiguous(&node.shape),
            primitive: Primitive::Elementwise(expression),
            inputs,
            shape: node.shape.clone(),
            dtype: DType::F32,
            extra_results: vec![],
        };
        Some((self.push(node), 0))
    }

    /// What an old node reads in f32, if the program returns it and it only reorders and rounds that, such as a cache of
    /// which a prompt replaces all. A second copy for its readers would take memory and time.
    fn reordered(&self, number: usize) -> Option<Edge> {
        let node = &self.old.nodes[number];
        let (Primitive::Elementwise(expression), [edge]) = (&node.primitive, &node.inputs[..]) else {
            return None;
        };
        let is_cast = matches!(
            expression.steps[..],
            [ExpressionStep::Input(0)] | [ExpressionStep::Input(0), ExpressionStep::Cast(0, _)]
        );
        let reads = self.wide(edge)?;
        let is_reordered = is_cast && self.is_returned[number] && !reads.layout.is_contiguous();
        (is_reordered && !self.is_state(&reads)).then_some(reads)
    }

    /// The edge that reads the same elements in f32 where they lie in another order, if there are such.
    fn wide_elsewhere(&self, edge: &Edge) -> Option<Edge> {
        let reordered = self.made[edge.node][edge.result].reordered.as_ref()?;
        Some(reordered.through(reordered.layout.permuted_as(&edge.layout)?))
    }

    /// An operation over f32 where there is.
    fn operation(&mut self, number: usize) -> Option<Source> {
        let old = &self.old.nodes[number];
        let takes = |input: usize| takes_wide(self.old, number, input);
        let wide: Vec<Option<Edge>> = (old.inputs.iter().enumerate())
            .map(|(input, edge)| self.wide(edge).filter(|_| takes(input)))
            .collect();
        if wide.iter().all(Option::is_none) {
            return None;
        }
        let inputs: Vec<Edge> = (old.inputs.iter().zip(wide))
            .map(|(edge, wide)| wide.unwrap_or_else(|| self.exact(edge)))
            .collect();
        let spec = |edge: &Edge| ArraySpec::new(&edge.layout.shape, self.nodes[edge.node].dtype_of(edge.result));
        let specs: Vec<ArraySpec> = inputs.iter().map(spec).collect();
        let mut results = results(old, &specs)?.into_iter();
        let first = results.next()?;
        let is_wide = |result: usize, dtype: DType| !is_half(old.dtype_of(result)) || dtype == DType::F32;
        let rest: Vec<ArraySpec> = results.collect();
        let all_wide = is_wide(0, first.dtype) && (1..).zip(&rest).all(|(result, spec)| is_wide(result, spec.dtype));
        if !all_wide {
            return None;
        }
        let node = Node {
            extra_results: rest,
            ..Node::new(old.primitive.clone(), inputs, first.shape.to_vec(), first.dtype)
        };
        Some((self.push(node), 0))
    }

    /// The expression with its steps in f32 instead of half precision, and its inputs in f32 where there is.
    fn reading_wide(&mut self, expression: &Expression, inputs: &[Edge]) -> (Expression, Vec<Edge>) {
        let mut dtypes = expression.inputs.clone();
        let mut edges = Vec::with_capacity(inputs.len());
        for (edge, dtype) in inputs.iter().zip(&mut dtypes) {
            let wide = self.wide(edge).or_else(|| self.wide_elsewhere(edge));
            let wide = wide.filter(|_| is_half(*dtype));
            if wide.is_some() {
                *dtype = DType::F32;
            }
            edges.push(wide.unwrap_or_else(|| self.exact(edge)));
        }
        (widened(expression, dtypes), edges)
    }
}

/// The expression over inputs of these dtypes, with its steps in f32 instead of half precision. Constants keep their
/// rounding.
fn widened(expression: &Expression, inputs: Vec<DType>) -> Expression {
    let before = expression.dtypes().expect("graphs hold valid expressions");
    let mut steps: Vec<ExpressionStep> = Vec::with_capacity(expression.steps.len());
    // The new number of each step.
    let mut at: Vec<usize> = Vec::with_capacity(expression.steps.len());
    for (step, &dtype) in expression.steps.iter().zip(&before) {
        let new = match *step {
            ExpressionStep::Input(input) => {
                steps.push(*step);
                is_half(inputs[input]).then(|| ExpressionStep::Cast(steps.len() - 1, DType::F32))
            }
            ExpressionStep::Constant { .. } => {
                steps.push(*step);
                is_half(dtype).then(|| ExpressionStep::Cast(steps.len() - 1, DType::F32))
            }
            ExpressionStep::Index => {
                steps.push(*step);
                None
            }
            ExpressionStep::Unary(..) | ExpressionStep::Binary(..) | ExpressionStep::Select(..) => {
                Some(step.renumbered(|operand| at[operand]))
            }
            ExpressionStep::Cast(a, to) => {
                let is_wide = |dtype: DType| is_half(dtype) || dtype == DType::F32;
                if is_wide(to) && is_wide(before[a]) {
                    at.push(at[a]);
                    continue;
                }
                let to = if is_half(to) { DType::F32 } else { to };
                Some(ExpressionStep::Cast(at[a], to))
            }
        };
        steps.extend(new);
        at.push(steps.len() - 1);
    }
    // The last step is the result, which needs none of those behind it.
    steps.truncate(at.last().expect("an expression has steps") + 1);
    sigmoid::recognised(Expression { inputs, steps })
}
