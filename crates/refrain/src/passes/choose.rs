use std::hash::Hash;

use refrain_kernels::{OperandSpec, Traits, Unsupported, elementwise};

use super::canonicalise::copy_of;
use crate::device::Backend;
use crate::graph::{Edge, Graph, Node};
use crate::operation::Kernels;
use crate::signature::{FastMap, Signature};
use crate::{DType, Device, Error, Layout, Primitive};

/// A graph with the kernels of each node.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The graph, with copies added for kernels that cannot read an operand in its layout.
    pub graph: Graph,
    /// The kernels of each node.
    pub kernels: Vec<Kernels>,
}

/// Chooses the kernels that compute each node on `device`.
///
/// # Errors
/// [`Error::Unsupported`], with operation, dtype and device, if there is no kernel.
pub fn choose(graph: Graph, device: &Device) -> Result<Chosen, Error> {
    let Backend::Vulkan { traits, .. } = device.backend() else {
        let kernels = graph.nodes.iter().map(|_| Kernels::default()).collect();
        return Ok(Chosen { graph, kernels });
    };
    let mut chooser = Chooser {
        device,
        traits,
        nodes: vec![],
        kernels: vec![],
        found: FastMap::default(),
    };
    let mut renamed = Vec::with_capacity(graph.nodes.len());
    let rename = |renamed: &[usize], edges: &[Edge]| -> Vec<Edge> {
        edges
            .iter()
            .map(|e| Edge {
                node: renamed[e.node],
                ..e.clone()
            })
            .collect()
    };
    for node in graph.nodes {
        let inputs = rename(&renamed, &node.inputs);
        renamed.push(chooser.add(Node { inputs, ..node })?);
    }
    let outputs = rename(&renamed, &graph.outputs);
    Ok(Chosen {
        graph: Graph {
            nodes: chooser.nodes,
            outputs,
        },
        kernels: chooser.kernels,
    })
}

struct Chooser<'a> {
    device: &'a Device,
    traits: &'a Traits,
    nodes: Vec<Node>,
    kernels: Vec<Kernels>,
    /// Kernels found so far, by primitive and operands. Layers are alike, and building shader sources takes time.
    found: FastMap<Signature, Kernels>,
}

impl Chooser<'_> {
    /// Adds a node and its kernels, after the copies that they need. Returns its number.
    fn add(&mut self, mut node: Node) -> Result<usize, Error> {
        let kernels = loop {
            match self.kernels_of(&node) {
                Ok(kernels) => break kernels,
                Err(Unsupported::NeedsContiguous { operand, .. }) if has_gaps(&node, operand) => {
                    let edge = node.inputs[operand].clone();
                    let (shape, dtype) = (edge.layout.shape.clone(), self.dtype(&edge));
                    let copy = self.add(copy_of(edge, shape.to_vec(), dtype))?;
                    node.inputs[operand] = Edge::first(copy, Layout::contiguous(&shape));
                }
                // No copy of an input helps: the kernel cannot write the layout that the consumer reads.
                Err(Unsupported::NeedsContiguous { .. }) if !node.layout.is_contiguous() => {
                    let wanted = std::mem::replace(&mut node.layout, Layout::contiguous(&node.shape));
                    let (shape, dtype) = (node.shape.clone(), node.dtype);
                    let edge = Edge::first(self.add(node)?, Layout::contiguous(&shape));
                    return self.add(Node {
                        layout: wanted,
                        ..copy_of(edge, shape, dtype)
                    });
                }
                Err(why) => {
                    return Err(Error::Unsupported {
                        op: node.primitive.name().to_string(),
                        dtype: node.dtype,
                        device: self.device.name().to_string(),
                        why: why.to_string(),
                    });
                }
            }
        };
        self.nodes.push(node);
        self.kernels.push(kernels);
        Ok(self.nodes.len() - 1)
    }

    fn kernels_of(&mut self, node: &Node) -> Result<Kernels, Unsupported> {
        let new = 0..node.new_results();
        let is_empty = !new.is_empty() && new.clone().all(|result| node.layout_of(result).count() == 0);
        if node.primitive.is_leaf() || is_empty {
            return Ok(Kernels::default());
        }
        let input = |edge: &Edge| OperandSpec {
            dtype: self.dtype(edge),
            layout: edge.layout.clone(),
        };
        let result = |result: usize| OperandSpec {
            dtype: node.dtype_of(result),
            layout: node.layout_of(result),
        };
        let operands: Vec<OperandSpec> = node.inputs.iter().map(input).chain(new.map(result)).collect();
        let mut key = Signature::default();
        (&node.primitive, &operands).hash(&mut key);
        if let Some(kernels) = self.found.get(&key) {
            return Ok(kernels.clone());
        }
        let kernels = kernels(self.traits, &node.primitive, &operands)?;
        self.found.insert(key, kernels.clone());
        Ok(kernels)
    }

    fn dtype(&self, edge: &Edge) -> DType {
        self.nodes[edge.node].dtype_of(edge.result)
    }
}

/// Whether copying this input could help.
fn has_gaps(node: &Node, operand: usize) -> bool {
    let is_plain = |e: &Edge| e.layout.is_contiguous() && e.layout.offset == 0;
    node.inputs.get(operand).is_some_and(|edge| !is_plain(edge))
}

/// The kernels of a primitive. `operands` are its inputs, then its new results.
fn kernels(traits: &Traits, primitive: &Primitive, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
    match primitive {
        Primitive::Elementwise(expression) => {
            let call = elementwise::call(traits, expression, &operands.iter().collect::<Vec<_>>())?;
            Ok(Kernels::one(call))
        }
        Primitive::Operation(operation) => operation.lower(traits, operands),
        Primitive::Stored { .. } | Primitive::Input { .. } | Primitive::Integers => Ok(Kernels::default()),
        Primitive::Integer { .. } => unreachable!("graphs have constants or words"),
        Primitive::Composite { .. } => unreachable!("graphs have what it is composed of"),
        Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice(_) | Primitive::Broadcast => {
            unreachable!("canonicalise removes views")
        }
    }
}
