//! The graph that passes work on: nodes in program order, edges that see their source through a layout.

mod trace;

use std::fmt;

use crate::array::Array;
use crate::operation::ArraySpec;
use crate::passes::LowerOptions;
use crate::written::Written;
use crate::{DType, Error, Layout, Primitive};

pub(crate) use trace::{SeenVersion, StateUpdate, Traced};

/// Nodes in an order in which every node comes after its inputs.
#[derive(Clone, Debug)]
pub struct Graph {
    /// What is computed; a node's number is its index.
    pub nodes: Vec<Node>,
    /// What is wanted.
    pub outputs: Vec<Edge>,
}

/// A computation and its results: first what is new, then the next version of each state that it updates, in the
/// memory of that state.
#[derive(Clone, Debug)]
pub struct Node {
    /// How they are computed.
    pub primitive: Primitive,
    /// From what.
    pub inputs: Vec<Edge>,
    /// Extents of the first result.
    pub shape: Vec<usize>,
    /// Storage type of the first result.
    pub dtype: DType,
    /// How the first result lies in its own memory: without gaps, unless a pass lets it be written in the
    /// layout that its consumer wants.
    pub written: Layout,
    /// The results behind the first, which lie without gaps.
    pub further: Vec<ArraySpec>,
}

/// A use of a node's result: which, and through which layout (relative to the result's memory).
#[derive(Clone, PartialEq, Debug)]
pub struct Edge {
    /// Number of the source.
    pub node: usize,
    /// Which of its results.
    pub result: usize,
    /// How the user sees the source's memory.
    pub layout: Layout,
}

impl Node {
    /// A node whose result is written without gaps.
    pub fn new(primitive: Primitive, inputs: Vec<Edge>, shape: Vec<usize>, dtype: DType) -> Node {
        Node {
            primitive,
            inputs,
            written: Layout::contiguous(&shape),
            shape,
            dtype,
            further: vec![],
        }
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        1 + self.further.len()
    }

    /// How many of the results, the first ones, are new: memory of their own.
    pub fn new_results(&self) -> usize {
        self.results() - self.primitive.updates().len()
    }

    /// Storage type of a result.
    pub fn dtype_of(&self, result: usize) -> DType {
        if result == 0 {
            self.dtype
        } else {
            self.further[result - 1].dtype
        }
    }

    /// How a result lies in its memory.
    pub fn written_of(&self, result: usize) -> Layout {
        if result == 0 {
            self.written.clone()
        } else {
            Layout::contiguous(&self.further[result - 1].shape)
        }
    }

    /// The state whose next version a result is, if it is one.
    pub fn updated(&self, result: usize) -> Option<&Edge> {
        let number = result.checked_sub(self.new_results())?;
        Some(&self.inputs[self.primitive.updates()[number]])
    }
}

impl Edge {
    /// The first result of a node, seen through a layout.
    pub fn first(node: usize, layout: Layout) -> Edge {
        Edge {
            node,
            result: 0,
            layout,
        }
    }

    /// The same result seen through another layout.
    pub fn through(&self, layout: Layout) -> Edge {
        Edge { layout, ..*self }
    }

    /// Which result of which node it sees.
    pub fn source(&self) -> (usize, usize) {
        (self.node, self.result)
    }
}

impl Graph {
    /// The part of the program that `outputs` need, as it was written: what the passes start from.
    ///
    /// # Errors
    /// The error of an invalid array; [`Error::StaleState`]; arrays of several devices, or none.
    pub fn trace(outputs: &[&Array]) -> Result<Graph, Error> {
        Ok(Traced::of(&Written::alone(outputs, LowerOptions::default())?)?.graph)
    }

    /// The same program with its nodes in another order, in which inputs still stand before what needs
    /// them. `sequence` names each node once.
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

    /// Storage type of what an edge sees.
    pub fn dtype(&self, edge: &Edge) -> DType {
        self.nodes[edge.node].dtype_of(edge.result)
    }

    /// Whether an edge sees a state. States change in place between a node and its user: what reads one stays where it
    /// is.
    pub fn is_state(&self, edge: &Edge) -> bool {
        let node = &self.nodes[edge.node];
        match &node.primitive {
            Primitive::Stored { class, .. } => class.is_state(),
            _ => node.updated(edge.result).is_some(),
        }
    }

    /// Whether an edge sees all that its source holds, in order.
    pub fn is_whole(&self, edge: &Edge) -> bool {
        let written = self.nodes[edge.node].written_of(edge.result);
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

    /// How many inputs (and outputs of the graph) use each node.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.nodes.len()];
        let edges = self.nodes.iter().flat_map(|n| &n.inputs).chain(&self.outputs);
        edges.for_each(|e| counts[e.node] += 1);
        counts
    }
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
            if !node.written.is_contiguous() {
                write!(f, " written {:?}", node.written.strides)?;
            }
            // The next versions of states are as the states are.
            for ArraySpec { shape, dtype } in node.further.iter().take(node.new_results().saturating_sub(1)) {
                write!(f, ", {dtype}{shape:?}")?;
            }
            let inputs: Vec<String> = node.inputs.iter().map(Edge::to_string).collect();
            writeln!(f, " ({})", inputs.join(", "))?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(Edge::to_string).collect();
        writeln!(f, "return {}", outputs.join(", "))
    }
}
