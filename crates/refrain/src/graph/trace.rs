//! The graph of what arrays wrote.

use std::collections::HashMap;

use super::{Edge, Graph, Node};
use crate::array::{Array, Content, Value};
use crate::operation::ArraySpec;
use crate::signature::FastMap;
use crate::written::Written;
use crate::{Error, Layout, Primitive};

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
