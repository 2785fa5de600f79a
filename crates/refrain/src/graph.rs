//! The graph that passes work on: nodes in program order, edges that see their source through a layout.

use std::collections::HashMap;
use std::fmt;

use crate::array::{Array, Content, Value};
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

/// One result.
#[derive(Clone, Debug)]
pub struct Node {
    /// How it is computed.
    pub primitive: Primitive,
    /// From what.
    pub inputs: Vec<Edge>,
    /// Extents of the result.
    pub shape: Vec<usize>,
    /// Storage type of the result.
    pub dtype: DType,
    /// How the result lies in its own memory: without gaps, unless a pass lets it be written in the
    /// layout that its consumer wants.
    pub written: Layout,
}

/// A use of a node's result: which, and through which layout (relative to the result's memory).
#[derive(Clone, PartialEq, Debug)]
pub struct Edge {
    /// Number of the source.
    pub node: usize,
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

/// That a state changes in place, or that an array is its newest version at that point.
pub(crate) struct StateUpdate {
    pub slot: usize,
    /// Whether the state changes here.
    pub changes: bool,
    /// The array, by its number among those that are computed, that is the state's newest version from here on.
    pub array: Option<usize>,
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
        }
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
        let outputs: Vec<Edge> = (written.outputs.iter())
            .map(|array| builder.edges[&array.id()].clone())
            .collect();
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
    /// For each node that is a version of a state, or a view of one: its slot, and which version.
    states: Vec<Option<(usize, u64)>>,
    /// For each array, by its id, what it is in the graph.
    edges: FastMap<u64, Edge>,
    /// Nodes of slots at some version.
    stored: HashMap<(usize, u64), usize>,
    /// The version that each state has reached so far in this program, by slot.
    versions: HashMap<usize, u64>,
    updates: Vec<StateUpdate>,
}

impl Builder<'_> {
    fn push(&mut self, node: Node, state: Option<(usize, u64)>) -> usize {
        self.nodes.push(node);
        self.states.push(state);
        self.nodes.len() - 1
    }

    fn add_stored(&mut self, array: &Array) {
        let content = array.content();
        let Content::Ready(Value {
            storage,
            layout,
            version,
        }) = &*content
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
                let state = storage.is_state().then_some((slot, version));
                let node = Node::new(primitive, vec![], array.shape().to_vec(), array.dtype());
                let node = self.push(node, state);
                self.stored.insert((slot, version), node);
                node
            }
        };
        let layout = layout.clone();
        self.edges.insert(array.id(), Edge { node, layout });
    }

    fn add_computed(&mut self, array: &Array, number: usize) -> Result<(), Error> {
        let content = array.content();
        let Content::Lazy(primitive, inputs) = &*content else {
            unreachable!("nobody else makes it ready")
        };
        let edge = |input: &Array| self.edges[&input.id()].clone();
        let inputs: Vec<Edge> = inputs.iter().map(edge).collect();
        // What has been updated is named by the version before.
        if !matches!(primitive, Primitive::Updated) {
            for edge in &inputs {
                self.check_version(primitive, edge)?;
            }
        }
        for &updated in primitive.updates() {
            let (slot, version) = self.states[inputs[updated].node].expect("a state");
            self.versions.insert(slot, version + 1);
            self.updates.push(StateUpdate {
                slot,
                changes: true,
                array: None,
            });
        }
        let seen = inputs.first().and_then(|edge| self.states[edge.node]);
        let state = match primitive {
            Primitive::WriteRows | Primitive::Updated => {
                let (slot, version) = seen.expect("only states are updated");
                self.updates.push(StateUpdate {
                    slot,
                    changes: false,
                    array: Some(number),
                });
                Some((slot, version + 1))
            }
            Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice { .. } | Primitive::Broadcast => seen,
            _ => None,
        };
        let node = Node::new(primitive.clone(), inputs, array.shape().to_vec(), array.dtype());
        let edge = Edge {
            node: self.push(node, state),
            layout: Layout::contiguous(array.shape()),
        };
        self.edges.insert(array.id(), edge);
        Ok(())
    }

    /// The slot of the state that an edge sees, if it sees one, the version, and the one reached so far.
    fn versions_at(&self, edge: &Edge) -> Option<(usize, u64, u64)> {
        let (slot, version) = self.states[edge.node]?;
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
            let inputs: Vec<String> = node.inputs.iter().map(Edge::to_string).collect();
            writeln!(f, " ({})", inputs.join(", "))?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(Edge::to_string).collect();
        writeln!(f, "return {}", outputs.join(", "))
    }
}
