//! The graph that passes work on: nodes in program order, and edges that read their source through a layout.

mod composite;
mod integers;
mod trace;

use std::fmt;

use crate::operation::ArraySpec;
use crate::{DType, Layout, Primitive};

/// Nodes in topological order: every node comes after its inputs.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The computations. A node's number is its index.
    pub nodes: Vec<Node>,
    /// The results that the program returns.
    pub outputs: Vec<Edge>,
}

/// A computation and its results: first the new ones, then the next version of each state that it updates, in the
/// memory of that state.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it computes.
    pub primitive: Primitive,
    /// What it reads.
    pub inputs: Vec<Edge>,
    /// Extents of the first result.
    pub shape: Vec<usize>,
    /// Storage type of the first result.
    pub dtype: DType,
    /// Layout in which the first result is stored. Contiguous, unless a pass makes the node write in the layout that
    /// its consumer reads.
    pub layout: Layout,
    /// The results after the first; they are stored contiguously.
    pub extra_results: Vec<ArraySpec>,
}

/// A use of a node's result, read through a layout relative to the result's memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Edge {
    /// Number of the source.
    pub node: usize,
    /// Index among the source's results.
    pub result: usize,
    /// Layout through which the user reads the source's memory.
    pub layout: Layout,
}

impl Node {
    /// A node with one result, stored contiguously.
    pub fn new(primitive: Primitive, inputs: Vec<Edge>, shape: Vec<usize>, dtype: DType) -> Node {
        Node {
            primitive,
            inputs,
            layout: Layout::contiguous(&shape),
            shape,
            dtype,
            extra_results: vec![],
        }
    }

    /// Number of results.
    pub fn results(&self) -> usize {
        1 + self.extra_results.len()
    }

    /// Number of results with memory of their own; these come first.
    pub fn new_results(&self) -> usize {
        self.results() - self.primitive.updates().len()
    }

    /// Storage type of a result.
    pub fn dtype_of(&self, result: usize) -> DType {
        if result == 0 {
            self.dtype
        } else {
            self.extra_results[result - 1].dtype
        }
    }

    /// Layout in which a result is stored.
    pub fn layout_of(&self, result: usize) -> Layout {
        if result == 0 {
            self.layout.clone()
        } else {
            Layout::contiguous(&self.extra_results[result - 1].shape)
        }
    }

    /// What it updates.
    pub(crate) fn states(&self) -> impl Iterator<Item = &Edge> {
        self.primitive.updates().iter().map(|&input| &self.inputs[input])
    }

    /// The state whose next version a result is, if it is one.
    pub fn updated(&self, result: usize) -> Option<&Edge> {
        let number = result.checked_sub(self.new_results())?;
        Some(&self.inputs[self.primitive.updates()[number]])
    }
}

impl Edge {
    /// The first result of a node, read through a layout.
    pub fn first(node: usize, layout: Layout) -> Edge {
        Edge {
            node,
            result: 0,
            layout,
        }
    }

    /// The same result read through another layout.
    pub fn through(&self, layout: Layout) -> Edge {
        Edge { layout, ..*self }
    }

    /// The node and the result that it reads.
    pub fn source(&self) -> (usize, usize) {
        (self.node, self.result)
    }
}

impl Graph {
    /// The same graph with its nodes reordered. `sequence` names each node once, inputs before their users.
    pub(crate) fn rearranged(self, sequence: &[usize]) -> Graph {
        let mut renamed = vec![0; sequence.len()];
        sequence.iter().enumerate().for_each(|(new, &old)| renamed[old] = new);
        let mut nodes: Vec<_> = self.nodes.into_iter().map(Some).collect();
        let taken = sequence.iter().map(|&old| nodes[old].take().expect("each node once"));
        let mut nodes: Vec<_> = taken.collect();
        let mut outputs = self.outputs;
        let rename = |edge: &mut Edge| edge.node = renamed[edge.node];
        nodes
            .iter_mut()
            .flat_map(|node| &mut node.inputs)
            .chain(&mut outputs)
            .for_each(rename);
        Graph { nodes, outputs }
    }

    /// Names of the placeholders.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter_map(|node| match &node.primitive {
            Primitive::Input { name } => Some(name.as_str()),
            _ => None,
        })
    }

    /// Storage type of the result that an edge reads.
    pub fn dtype(&self, edge: &Edge) -> DType {
        self.nodes[edge.node].dtype_of(edge.result)
    }

    /// Whether an edge reads a state. States change in place, so a pass must not move a reader past an update.
    pub fn is_state(&self, edge: &Edge) -> bool {
        let node = &self.nodes[edge.node];
        match &node.primitive {
            Primitive::Stored { class, .. } => class.is_state(),
            _ => node.updated(edge.result).is_some(),
        }
    }

    /// Whether an edge reads the whole result of its source, in row-major order.
    pub fn is_whole(&self, edge: &Edge) -> bool {
        let written = self.nodes[edge.node].layout_of(edge.result);
        let gapless = written.is_contiguous() && edge.layout.is_contiguous();
        gapless && edge.layout.offset == written.offset && edge.layout.count() == written.count()
    }

    /// For each node, the nodes that use it, in order.
    pub fn users(&self) -> Vec<Vec<usize>> {
        let mut users: Vec<Vec<usize>> = vec![vec![]; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            for edge in &node.inputs {
                let users = &mut users[edge.node];
                if users.last() != Some(&number) {
                    users.push(number);
                }
            }
        }
        users
    }

    /// Number of inputs and graph outputs that use each node.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.nodes.len()];
        let edges = self.nodes.iter().flat_map(|n| &n.inputs).chain(&self.outputs);
        edges.for_each(|e| counts[e.node] += 1);
        counts
    }
}

/// The edge of which updates made what `edge` reads; `edge` itself, if it reads no update.
pub(crate) fn first_version<'g>(nodes: &'g [Node], edge: &'g Edge) -> &'g Edge {
    let mut first = edge;
    while let Some(before) = nodes[first.node].updated(first.result) {
        first = before;
    }
    first
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.node)?;
        if self.result > 0 {
            write!(f, ".{}", self.result)?;
        }
        if self.layout.is_contiguous() && self.layout.offset == 0 {
            Ok(())
        } else {
            write!(f, "{}", self.layout)
        }
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, node) in self.nodes.iter().enumerate() {
            write!(f, "%{number} = {} {}{:?}", node.primitive, node.dtype, node.shape)?;
            if !node.layout.is_contiguous() {
                write!(f, " written {:?}", node.layout.strides)?;
            }
            // The next versions of states have the states' shapes and dtypes.
            for ArraySpec { shape, dtype } in node.extra_results.iter().take(node.new_results().saturating_sub(1)) {
                write!(f, ", {dtype}{shape:?}")?;
            }
            let inputs: Vec<String> = node.inputs.iter().map(Edge::to_string).collect();
            writeln!(f, " ({})", inputs.join(", "))?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(Edge::to_string).collect();
        writeln!(f, "return {}", outputs.join(", "))
    }
}
