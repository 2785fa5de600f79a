//! The graph that passes work on: nodes in program order, edges that see their source through a layout.

use std::collections::HashMap;
use std::fmt;

use crate::array::{Array, Content, Value};
use crate::operation::ArraySpec;
use crate::passes::LowerOptions;
use crate::signature::FastMap;
use crate::written::Written;
use crate::{DType, Error, Layout, Primitive};

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

/// A program as it was written, and what becomes of states. No memory is in it.
pub(crate) struct Traced {
    pub graph: Graph,
    /// In the order in which they happen.
    pub updates: Vec<StateUpdate>,
    /// For each output that is a state or a view of one: what it sees of it.
    pub seen: Vec<Option<SeenVersion>>,
}

/// A version of a state, and the one that the program leaves behind: counted from the one that it finds.
#[derive(Clone, Copy)]
pub(crate) struct SeenVersion {
    pub slot: usize,
    pub version: i64,
    pub last: i64,
}

/// That a state changes in place.
pub(crate) struct StateUpdate {
    pub slot: usize,
    /// What makes its next version, by its number among what is computed, and which of the results that is.
    pub by: (usize, usize),
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

    /// For each node, the nodes that use it, in order.
    pub(crate) fn users(&self) -> Vec<Vec<usize>> {
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

impl Traced {
    /// # Errors
    /// [`Error::StaleState`].
    pub fn of(written: &Written) -> Result<Traced, Error> {
        let all = written.computed.len() + written.leaves.len();
        let mut builder = Builder {
            written,
            nodes: Vec::with_capacity(all),
            states: Vec::with_capacity(all),
            edges: FastMap::default(),
            stored: HashMap::new(),
            versions: HashMap::new(),
            updates: vec![],
        };
        let mut leaves = written.leaves.iter().peekable();
        for (number, array) in written.computed.iter().enumerate() {
            while let Some(leaf) = leaves.next_if(|leaf| leaf.id() < array.id()) {
                builder.add_stored(leaf);
            }
            builder.add_computed(array, number)?;
        }
        leaves.for_each(|leaf| builder.add_stored(leaf));
        let outputs: Vec<Edge> = (written.outputs.iter()).map(|array| builder.edge(array)).collect();
        let seen = outputs.iter().map(|edge| builder.seen_by(edge)).collect();
        Ok(Traced {
            graph: Graph {
                nodes: builder.nodes,
                outputs,
            },
            updates: builder.updates,
            seen,
        })
    }
}

struct Builder<'w> {
    written: &'w Written,
    nodes: Vec<Node>,
    /// For each node that is stored or a view: if it sees a state, its slot, and which version. What updates states
    /// has the versions that it makes.
    states: Vec<SeenVersions>,
    /// For each array, by its computation and result, what it is in the graph.
    edges: FastMap<(u64, usize), Edge>,
    /// Nodes of slots at some version.
    stored: HashMap<(usize, u64), usize>,
    /// The version that each state has reached so far in this program, by slot.
    versions: HashMap<usize, u64>,
    updates: Vec<StateUpdate>,
}

/// The versions of states that a node's results are.
#[derive(Clone)]
enum SeenVersions {
    Nothing,
    /// Its one result is this version of a slot, or a view of it.
    Version(usize, u64),
    /// Its last results are the next versions of states: of each, slot and version.
    Updated(Vec<(usize, u64)>),
}

impl Builder<'_> {
    fn push(&mut self, node: Node, seen: SeenVersions) -> usize {
        self.nodes.push(node);
        self.states.push(seen);
        self.nodes.len() - 1
    }

    /// What an array that is an input or an output is in the graph.
    fn edge(&self, array: &Array) -> Edge {
        self.edges[&(array.id(), array.result())].clone()
    }

    fn add_stored(&mut self, array: &Array) {
        let content = array.content();
        let Some(Value {
            storage,
            layout,
            version,
        }) = content.value(array.result())
        else {
            unreachable!("leaves are ready")
        };
        let (slot, version) = (self.written.slot_of(storage), *version);
        let node = match self.stored.get(&(slot, version)) {
            Some(&node) => node,
            None => {
                let primitive = Primitive::Stored {
                    slot,
                    class: storage.class(),
                    behind: storage.version() - version,
                };
                let seen = if storage.is_state() {
                    SeenVersions::Version(slot, version)
                } else {
                    SeenVersions::Nothing
                };
                let node = Node::new(primitive, vec![], array.shape().to_vec(), array.dtype());
                let node = self.push(node, seen);
                self.stored.insert((slot, version), node);
                node
            }
        };
        self.edges
            .insert((array.id(), array.result()), Edge::first(node, layout.clone()));
    }

    /// Adds computation `number`.
    fn add_computed(&mut self, array: &Array, number: usize) -> Result<(), Error> {
        let content = array.content();
        let Content::Lazy(primitive, inputs) = &*content else {
            unreachable!("nobody else makes it ready")
        };
        let inputs: Vec<Edge> = inputs.iter().map(|input| self.edge(input)).collect();
        for edge in &inputs {
            self.check_version(primitive, edge)?;
        }
        let mut specs = array.specs();
        let first = specs.next().expect("there is a result");
        let further: Vec<ArraySpec> = specs.cloned().collect();
        let seen = match primitive {
            Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice { .. } | Primitive::Broadcast => {
                match self.version_at(&inputs[0]) {
                    Some((slot, version)) => SeenVersions::Version(slot, version),
                    None => SeenVersions::Nothing,
                }
            }
            _ if primitive.updates().is_empty() => SeenVersions::Nothing,
            _ => {
                let new = 1 + further.len() - primitive.updates().len();
                let mut made = Vec::with_capacity(primitive.updates().len());
                for (result, &updated) in (new..).zip(primitive.updates()) {
                    let (slot, version) = self.version_at(&inputs[updated]).expect("only states are updated");
                    self.versions.insert(slot, version + 1);
                    let by = (number, result);
                    self.updates.push(StateUpdate { slot, by });
                    made.push((slot, version + 1));
                }
                SeenVersions::Updated(made)
            }
        };
        let node = Node {
            further,
            ..Node::new(primitive.clone(), inputs, first.shape.clone(), first.dtype)
        };
        let node = self.push(node, seen);
        for (result, spec) in array.specs().enumerate() {
            let layout = Layout::contiguous(&spec.shape);
            let edge = Edge { node, result, layout };
            self.edges.insert((array.id(), result), edge);
        }
        Ok(())
    }

    /// The slot and the version of the state that an edge sees, if it sees one.
    fn version_at(&self, edge: &Edge) -> Option<(usize, u64)> {
        match &self.states[edge.node] {
            SeenVersions::Nothing => None,
            SeenVersions::Version(slot, version) => Some((*slot, *version)),
            SeenVersions::Updated(made) => {
                let number = edge.result.checked_sub(self.nodes[edge.node].new_results())?;
                Some(made[number])
            }
        }
    }

    /// The slot of the state that an edge sees, if it sees one, the version, and the one reached so far.
    fn versions_at(&self, edge: &Edge) -> Option<(usize, u64, u64)> {
        let (slot, version) = self.version_at(edge)?;
        let reached = self.versions.get(&slot).copied();
        Some((
            slot,
            version,
            reached.unwrap_or_else(|| self.written.slots[slot].version()),
        ))
    }

    fn seen_by(&self, edge: &Edge) -> Option<SeenVersion> {
        let (slot, version, last) = self.versions_at(edge)?;
        let found = self.written.slots[slot].version() as i64;
        Some(SeenVersion {
            slot,
            version: version as i64 - found,
            last: last as i64 - found,
        })
    }

    /// A reader must see the newest version: updates happen in place, in program order.
    fn check_version(&self, reader: &Primitive, edge: &Edge) -> Result<(), Error> {
        match self.versions_at(edge) {
            Some((_, read, current)) if read != current => Err(Error::StaleState {
                op: reader.name().to_string(),
                read,
                current,
            }),
            _ => Ok(()),
        }
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
