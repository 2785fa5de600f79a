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
#[derive(Clone, Debug)]
pub struct Edge {
    /// Number of the source.
    pub node: usize,
    /// How the user sees the source's memory.
    pub layout: Layout,
}

/// A graph and the arrays whose evaluation updates a state.
pub(crate) struct Traced {
    pub graph: Graph,
    pub updates: Vec<Update>,
}

pub(crate) struct Update {
    pub array: Array,
    pub storage: Storage,
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
    /// The part of the program that `outputs` need.
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
        let outputs = outputs.iter().map(|a| builder.edges[&a.id()].clone()).collect();
        Ok(Traced {
            graph: Graph {
                nodes: builder.nodes,
                outputs,
            },
            updates: builder.updates,
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

/// Every array that `outputs` depend on, in program order.
fn reachable(outputs: &[&Array]) -> Result<Vec<Array>, Error> {
    let mut found: HashMap<u64, Array> = HashMap::new();
    let mut pending: Vec<Array> = outputs.iter().map(|&a| a.clone()).collect();
    while let Some(array) = pending.pop() {
        if found.contains_key(&array.id()) {
            continue;
        }
        if let Content::Lazy(_, inputs) = &*array.content() {
            pending.extend(inputs.iter().cloned());
        }
        found.insert(array.id(), array);
    }
    let mut arrays: Vec<Array> = found.into_values().collect();
    arrays.sort_by_key(Array::id);
    let device = arrays[0].device();
    match arrays.iter().find(|a| !a.device().same(device)) {
        None => Ok(arrays),
        Some(other) => Err(Error::Call(format!(
            "arrays on {:?} and {:?} meet in one operation; copy one with to_device",
            device,
            other.device()
        ))),
    }
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    edges: HashMap<u64, Edge>,
    stored: HashMap<(usize, u64), usize>,
    /// The version that each state has reached so far in this program, by storage.
    versions: HashMap<usize, u64>,
    updates: Vec<Update>,
}

impl Builder {
    fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
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
                let node = self.push(Node::new(primitive, vec![], array.shape().to_vec(), array.dtype()));
                self.stored.insert((storage.key(), version), node);
                node
            }
        };
        Edge { node, layout }
    }

    fn computed(&mut self, array: &Array, primitive: Primitive, inputs: &[Array]) -> Result<Edge, Error> {
        let inputs: Vec<Edge> = inputs.iter().map(|a| self.edges[&a.id()].clone()).collect();
        for edge in &inputs {
            self.check_version(&primitive, edge)?;
        }
        if matches!(primitive, Primitive::WriteRows) {
            let storage = self.state_of(inputs[0].node).expect("states are stored").0.clone();
            *self.versions.entry(storage.key()).or_insert(storage.version()) += 1;
            self.updates.push(Update {
                array: array.clone(),
                storage,
            });
        }
        let node = self.push(Node::new(primitive, inputs, array.shape().to_vec(), array.dtype()));
        Ok(Edge {
            node,
            layout: Layout::contiguous(array.shape()),
        })
    }

    /// The state that a node stands for, and at which version.
    fn state_of(&self, node: usize) -> Option<(&Storage, u64)> {
        match &self.nodes[node].primitive {
            Primitive::Stored { storage, version } => Some((storage, *version)),
            Primitive::WriteRows => self.state_of(self.nodes[node].inputs[0].node).map(|(s, v)| (s, v + 1)),
            Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice { .. } | Primitive::Broadcast => {
                self.state_of(self.nodes[node].inputs[0].node)
            }
            _ => None,
        }
    }

    /// A reader must see the newest version: updates happen in place, in program order.
    fn check_version(&self, reader: &Primitive, edge: &Edge) -> Result<(), Error> {
        let Some((storage, read)) = self.state_of(edge.node) else {
            return Ok(());
        };
        let current = self.versions.get(&storage.key()).copied().unwrap_or(storage.version());
        if read == current {
            return Ok(());
        }
        Err(Error::StaleState {
            op: reader.name().to_string(),
            read,
            current,
        })
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
