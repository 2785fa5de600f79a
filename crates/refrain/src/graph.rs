//! The graph that passes work on: nodes in program order, edges that see their source through a layout.

use std::collections::HashMap;
use std::fmt;

use crate::array::{Array, Content, Value};
use crate::storage::Storage;
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

/// A graph and the arrays whose evaluation updates a state.
pub(crate) struct Traced {
    pub graph: Graph,
    /// In the order in which they happen.
    pub updates: Vec<Update>,
    /// For each output that is a state or a view of one: what it sees of it.
    pub seen: Vec<Option<Seen>>,
}

/// A version of a state, and the one that the program leaves behind.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub version: u64,
    pub last: u64,
}

/// That a state changes in place, or that an array is its newest version at that point.
pub(crate) struct Update {
    pub storage: Storage,
    /// Whether the state changes here.
    pub changes: bool,
    /// The array that is the state's newest version from here on.
    pub array: Option<Array>,
}

impl Traced {
    /// The states that are read or updated; some more than once.
    pub fn states(&self) -> impl Iterator<Item = &Storage> {
        let stored = self.graph.nodes.iter().filter_map(|node| match &node.primitive {
            Primitive::Stored { storage, .. } => Some(storage),
            _ => None,
        });
        stored.filter(|storage| storage.is_state())
    }
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
        Ok(Graph::of(outputs)?.graph)
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

    /// [`Graph::trace`], and what becomes of states.
    ///
    /// # Errors
    /// The error of an invalid array, or [`Error::StaleState`].
    pub(crate) fn of(outputs: &[&Array]) -> Result<Traced, Error> {
        let arrays = reachable(outputs)?;
        let mut builder = Builder::default();
        for array in &arrays {
            let content = array.content().clone();
            let edge = match content {
                Content::Invalid(error) => return Err(error),
                Content::Ready(value) => builder.stored(array, value),
                Content::Lazy(primitive, inputs) => builder.computed(array, primitive, &inputs)?,
            };
            builder.edges.insert(array.id(), edge);
        }
        let outputs: Vec<Edge> = outputs.iter().map(|a| builder.edges[&a.id()].clone()).collect();
        let seen = outputs.iter().map(|edge| builder.seen(edge)).collect();
        Ok(Traced {
            graph: Graph {
                nodes: builder.nodes,
                outputs,
            },
            updates: builder.updates,
            seen,
        })
    }

    /// Names of the placeholders.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter_map(|node| match &node.primitive {
            Primitive::Input { name } => Some(name.as_str()),
            _ => None,
        })
    }

    /// How many inputs (and outputs of the graph) use each node.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.nodes.len()];
        let edges = self.nodes.iter().flat_map(|n| &n.inputs).chain(&self.outputs);
        edges.for_each(|e| counts[e.node] += 1);
        counts
    }
}

/// Every array that `outputs` depend on, and states as those leave them, in program order.
fn reachable(outputs: &[&Array]) -> Result<Vec<Array>, Error> {
    let mut found: HashMap<u64, Array> = HashMap::new();
    let mut pending: Vec<Array> = outputs.iter().map(|&a| a.clone()).collect();
    while let Some(array) = pending.pop() {
        if found.contains_key(&array.id()) {
            continue;
        }
        if let Content::Lazy(_, inputs) = &*array.content() {
            pending.extend(inputs.iter().cloned());
            pending.extend(array.next_versions());
        }
        found.insert(array.id(), array);
    }
    let mut arrays: Vec<Array> = found.into_values().collect();
    arrays.sort_by_key(Array::id);
    let Some(device) = arrays.first().map(Array::device) else {
        return Err(Error::Call("there is no output to compute".to_string()));
    };
    match arrays.iter().find(|a| !a.device().same(device)) {
        None => Ok(arrays),
        Some(other) => Err(Error::Call(format!(
            "arrays on {:?} and {:?} cannot be computed together; evaluate them apart",
            device,
            other.device()
        ))),
    }
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    /// For each node that is a version of a state, or a view of one: the state, and which version.
    states: Vec<Option<(Storage, u64)>>,
    edges: HashMap<u64, Edge>,
    stored: HashMap<(usize, u64), usize>,
    /// The version that each state has reached so far in this program, by storage.
    versions: HashMap<usize, u64>,
    updates: Vec<Update>,
}

impl Builder {
    fn push(&mut self, node: Node, state: Option<(Storage, u64)>) -> usize {
        self.nodes.push(node);
        self.states.push(state);
        self.nodes.len() - 1
    }

    fn stored(&mut self, array: &Array, value: Value) -> Edge {
        let Value {
            storage,
            layout,
            version,
        } = value;
        let node = match self.stored.get(&(storage.key(), version)) {
            Some(&node) => node,
            None => {
                let primitive = Primitive::Stored {
                    storage: storage.clone(),
                    version,
                };
                let state = storage.is_state().then(|| (storage.clone(), version));
                let node = self.push(
                    Node::new(primitive, vec![], array.shape().to_vec(), array.dtype()),
                    state,
                );
                self.stored.insert((storage.key(), version), node);
                node
            }
        };
        Edge { node, layout }
    }

    fn computed(&mut self, array: &Array, primitive: Primitive, inputs: &[Array]) -> Result<Edge, Error> {
        let inputs: Vec<Edge> = inputs.iter().map(|a| self.edges[&a.id()].clone()).collect();
        // What has been updated is named by the version before.
        if !matches!(primitive, Primitive::Updated) {
            for edge in &inputs {
                self.check_version(&primitive, edge)?;
            }
        }
        for &updated in primitive.updates() {
            let (storage, version) = self.states[inputs[updated].node].clone().expect("a state");
            self.versions.insert(storage.key(), version + 1);
            self.updates.push(Update {
                storage,
                changes: true,
                array: None,
            });
        }
        let seen = inputs.first().and_then(|edge| self.states[edge.node].clone());
        let state = match primitive {
            Primitive::WriteRows | Primitive::Updated => {
                let (storage, version) = seen.expect("only states are updated");
                self.updates.push(Update {
                    storage: storage.clone(),
                    changes: false,
                    array: Some(array.clone()),
                });
                Some((storage, version + 1))
            }
            Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice { .. } | Primitive::Broadcast => seen,
            _ => None,
        };
        let node = self.push(
            Node::new(primitive, inputs, array.shape().to_vec(), array.dtype()),
            state,
        );
        Ok(Edge {
            node,
            layout: Layout::contiguous(array.shape()),
        })
    }

    /// What an edge sees of a state, if it sees one.
    fn seen(&self, edge: &Edge) -> Option<Seen> {
        let (storage, version) = self.states[edge.node].as_ref()?;
        let last = self.versions.get(&storage.key()).copied().unwrap_or(storage.version());
        Some(Seen {
            version: *version,
            last,
        })
    }

    /// A reader must see the newest version: updates happen in place, in program order.
    fn check_version(&self, reader: &Primitive, edge: &Edge) -> Result<(), Error> {
        match self.seen(edge) {
            Some(Seen { version, last }) if version != last => Err(Error::StaleState {
                op: reader.name().to_string(),
                read: version,
                current: last,
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
