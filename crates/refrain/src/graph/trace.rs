//! Builds the graph of traced arrays.

use std::collections::HashMap;

use refrain_vulkan::MemoryClass;

use super::integers::Integers;
use super::{Edge, Graph, Node};
use crate::array::{Array, Content, Value};
use crate::integers::{IntegerSource, IntegerSources};
use crate::operation::ArraySpec;
use crate::ops::slice_update::SliceUpdate;
use crate::passes::LowerOptions;
use crate::program::{OutputVersion, ProgramGraph, StateUpdate};
use crate::signature::{FastMap, Signature};
use crate::traced_graph::TracedGraph;
use crate::{Error, Layout, Primitive};

impl Graph {
    /// The graph that `outputs` need, before the passes.
    ///
    /// # Errors
    /// Returns the error of an invalid array. [`Error::StaleState`] for a read of an old version. Fails if there are no
    /// outputs, or arrays of several devices.
    pub fn trace(outputs: &[&Array]) -> Result<Graph, Error> {
        let traced = TracedGraph::under_lock(outputs, LowerOptions::default())?;
        let integers = IntegerSources::constant(&traced.integers);
        Ok(ProgramGraph::of(&traced, integers)?.graph)
    }
}

impl ProgramGraph {
    /// # Errors
    /// [`Error::StaleState`].
    pub fn of(traced: &TracedGraph, integers: IntegerSources) -> Result<ProgramGraph, Error> {
        let all = traced.computed.len() + traced.leaves.len();
        let mut builder = Builder {
            traced,
            nodes: Vec::with_capacity(all),
            states: Vec::with_capacity(all),
            edges: FastMap::default(),
            stored: HashMap::new(),
            versions: HashMap::new(),
            updates: vec![],
            integers: Integers::new(&integers),
            shared: FastMap::default(),
        };
        builder.add_integers();
        let mut leaves = traced.leaves.iter().peekable();
        for (number, array) in traced.computed.iter().enumerate() {
            while let Some(leaf) = leaves.next_if(|leaf| leaf.id() < array.id()) {
                builder.add_stored(leaf);
            }
            builder.add_computed(array, Some(number))?;
        }
        leaves.for_each(|leaf| builder.add_stored(leaf));
        let outputs: Vec<Edge> = (traced.outputs.iter()).map(|array| builder.edge(array)).collect();
        let output_versions = outputs.iter().map(|edge| builder.output_version(edge)).collect();
        Ok(ProgramGraph {
            graph: Graph {
                nodes: builder.nodes,
                outputs,
            },
            integers,
            updates: builder.updates,
            output_versions,
        })
    }
}

pub(super) struct Builder<'w> {
    traced: &'w TracedGraph,
    pub(super) nodes: Vec<Node>,
    /// For each node, the versions of states that its results are.
    states: Vec<StateVersions>,
    /// The edge for each array, by the array's computation and result.
    pub(super) edges: FastMap<(u64, usize), Edge>,
    /// The node of each slot at each version.
    stored: HashMap<(usize, u64), usize>,
    /// The version that each state has reached so far in this program, by slot.
    versions: HashMap<usize, u64>,
    updates: Vec<StateUpdate>,
    pub(super) integers: Integers,
    /// The nodes that composites consist of, and constants: equal ones are one node.
    pub(super) shared: FastMap<Signature, usize>,
}

/// The versions of states that a node's results are.
#[derive(Clone)]
pub(super) enum StateVersions {
    Stateless,
    /// Its single result is this version of a slot, or a view of it.
    Version(usize, u64),
    /// Its last results are the next versions of states, as (slot, version).
    Updated(Vec<(usize, u64)>),
}

impl Builder<'_> {
    pub(super) fn push(&mut self, node: Node, versions: StateVersions) -> usize {
        self.nodes.push(node);
        self.states.push(versions);
        self.nodes.len() - 1
    }

    /// The edge of an array that is an input or an output.
    pub(super) fn edge(&self, array: &Array) -> Edge {
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
            unreachable!("leaves are evaluated")
        };
        let (slot, version) = (self.traced.slot_of(storage), *version);
        let node = match self.stored.get(&(slot, version)) {
            Some(&node) => node,
            None => {
                // Memory that the program writes over is a state of this program.
                let class = if self.traced.in_place.slots.contains(&slot) {
                    MemoryClass::State
                } else {
                    storage.class()
                };
                let primitive = Primitive::Stored {
                    slot,
                    class,
                    updates_since: storage.version() - version,
                };
                let versions = if class.is_state() {
                    StateVersions::Version(slot, version)
                } else {
                    StateVersions::Stateless
                };
                let node = Node::new(primitive, vec![], array.shape().to_vec(), array.dtype());
                let node = self.push(node, versions);
                self.stored.insert((slot, version), node);
                node
            }
        };
        self.edges
            .insert((array.id(), array.result()), Edge::first(node, layout.clone()));
    }

    /// Adds the computation with index `number`, or one that a composite is composed of.
    pub(super) fn add_computed(&mut self, array: &Array, number: Option<usize>) -> Result<(), Error> {
        let content = array.content();
        let Content::Lazy(primitive, inputs) = &*content else {
            unreachable!("no other thread evaluates while the lock is held")
        };
        let arrays = inputs;
        let inputs: Vec<Edge> = arrays.iter().map(|input| self.edge(input)).collect();
        for edge in &inputs {
            self.check_version(primitive, edge)?;
        }
        let in_place = &self.traced.in_place.numbers;
        let is_in_place = number.is_some_and(|number| in_place.binary_search(&number).is_ok());
        let source = primitive.integer().map(|value| match number {
            Some(_) => self.integers.next(),
            None => IntegerSource::Constant(value),
        });
        match (primitive, source) {
            (Primitive::Integer { .. }, Some(source)) => {
                self.add_integer(array, source);
                return Ok(());
            }
            (Primitive::Composite { composite, .. }, _) => {
                return self.add_composite(array, &**composite, arrays, source);
            }
            _ => {}
        }
        let mut specs = array.specs();
        let first = specs.next().expect("there is a result");
        let (primitive, inputs, shape) = match (primitive.operation::<SliceUpdate>(), source) {
            (Some(update), Some(IntegerSource::Word(word))) => self.rows_update(update, word, inputs, is_in_place),
            _ => (
                primitive
                    .in_place()
                    .filter(|_| is_in_place)
                    .unwrap_or_else(|| primitive.clone()),
                inputs,
                first.shape.to_vec(),
            ),
        };
        let extra_results: Vec<ArraySpec> = specs.cloned().collect();
        let versions = match &primitive {
            Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice(_) | Primitive::Broadcast => {
                match self.version_at(&inputs[0]) {
                    Some((slot, version)) => StateVersions::Version(slot, version),
                    None => StateVersions::Stateless,
                }
            }
            _ if primitive.updates().is_empty() => StateVersions::Stateless,
            _ => {
                let number = number.expect("composites update no state");
                let new = 1 + extra_results.len() - primitive.updates().len();
                let mut made = Vec::with_capacity(primitive.updates().len());
                for (result, &updated) in (new..).zip(primitive.updates()) {
                    let (slot, version) = self.version_at(&inputs[updated]).expect("only states are updated");
                    self.versions.insert(slot, version + 1);
                    let by = (number, result);
                    self.updates.push(StateUpdate { slot, by });
                    made.push((slot, version + 1));
                }
                StateVersions::Updated(made)
            }
        };
        let node = Node {
            extra_results,
            ..Node::new(primitive, inputs, shape, first.dtype)
        };
        let node = if number.is_none() || self.is_shared_constant(&node, array) {
            self.push_shared(node, versions)
        } else {
            self.push(node, versions)
        };
        for (result, spec) in array.specs().enumerate() {
            let layout = Layout::contiguous(&spec.shape);
            let edge = Edge { node, result, layout };
            self.edges.insert((array.id(), result), edge);
        }
        Ok(())
    }

    /// Whether a node is a constant that other layers of a program may need, too. Each output has memory of its own.
    fn is_shared_constant(&self, node: &Node, array: &Array) -> bool {
        let is_constant = node.inputs.is_empty() && matches!(node.primitive, Primitive::Elementwise(_));
        is_constant && !self.traced.outputs.iter().any(|output| output.id() == array.id())
    }

    /// Slot and version of the state that an edge reads, if it reads one.
    pub(super) fn version_at(&self, edge: &Edge) -> Option<(usize, u64)> {
        match &self.states[edge.node] {
            StateVersions::Stateless => None,
            StateVersions::Version(slot, version) => Some((*slot, *version)),
            StateVersions::Updated(made) => {
                let number = edge.result.checked_sub(self.nodes[edge.node].new_results())?;
                Some(made[number])
            }
        }
    }

    /// Slot and version of the state that an edge reads, if it reads one, and the version reached so far.
    fn versions_at(&self, edge: &Edge) -> Option<(usize, u64, u64)> {
        let (slot, version) = self.version_at(edge)?;
        let reached = self.versions.get(&slot).copied();
        Some((
            slot,
            version,
            reached.unwrap_or_else(|| self.traced.slots[slot].version()),
        ))
    }

    fn output_version(&self, edge: &Edge) -> Option<OutputVersion> {
        let (slot, version, last) = self.versions_at(edge)?;
        let found = self.traced.slots[slot].version() as i64;
        Some(OutputVersion {
            slot,
            version: version as i64 - found,
            last: last as i64 - found,
        })
    }

    /// A reader must read the newest version, because updates happen in place and in program order.
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
