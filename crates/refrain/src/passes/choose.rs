use std::hash::Hash;

use refrain_kernels::elementwise::{self, Expression};
use refrain_kernels::{
    Call, OperandSpec, Push, Traits, Unsupported, argmax, matmul, projection, quantised, reduce, rms_norm, softmax,
    take,
};

use super::canonicalise::copy_of;
use crate::device::Backend;
use crate::graph::{Edge, Graph, Node};
use crate::signature::{FastMap, Signature};
use crate::{DType, Device, Error, Layout, Primitive};

/// A graph whose nodes know their dispatches.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The graph, with copies where a kernel cannot take an operand as it lies.
    pub graph: Graph,
    /// For each node, how it is computed.
    pub kernels: Vec<Kernels>,
}

/// The dispatches of one node; none on the CPU executor, for leaves and for empty results.
#[derive(Clone, Debug, Default)]
pub struct Kernels {
    /// In order. Operands are numbered inputs, new results, workspace.
    pub calls: Vec<Call>,
    /// Whether each call needs what the one before it wrote.
    pub chained: bool,
    /// Memory for the calls alone.
    pub workspace: Option<OperandSpec>,
    /// Counters (u32) that are zero before and after the calls: the operand behind the workspace.
    pub tickets: usize,
}

impl Kernels {
    /// One dispatch, without more.
    pub fn one(call: Call) -> Kernels {
        Kernels {
            calls: vec![call],
            ..Kernels::default()
        }
    }

    /// Dispatches each of which needs what the one before it wrote.
    pub fn chained(calls: Vec<Call>) -> Kernels {
        Kernels {
            chained: calls.len() > 1,
            calls,
            ..Kernels::default()
        }
    }

    /// [`Kernels::chained`], with memory for them alone.
    pub fn with_workspace((calls, workspace): (Vec<Call>, Option<OperandSpec>)) -> Kernels {
        Kernels {
            workspace,
            ..Kernels::chained(calls)
        }
    }
}

/// Chooses the kernels that compute each node on `device`.
///
/// # Errors
/// [`Error::Unsupported`] naming the operation, dtype and device where there is none.
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
    /// Kernels found so far, by primitive and operands: layers are alike, and texts take time to build.
    found: FastMap<Signature, Kernels>,
}

impl Chooser<'_> {
    /// Adds a node and its kernels, behind the copies that they need; returns its number.
    fn add(&mut self, mut node: Node) -> Result<usize, Error> {
        let kernels = loop {
            match self.kernels_of(&node) {
                Ok(kernels) => break kernels,
                Err(Unsupported::NeedsContiguous { operand, .. }) if has_gaps(&node, operand) => {
                    let edge = node.inputs[operand].clone();
                    let (shape, dtype) = (edge.layout.shape.clone(), self.dtype(&edge));
                    let copy = self.add(copy_of(edge, shape.clone(), dtype))?;
                    node.inputs[operand] = Edge::first(copy, Layout::contiguous(&shape));
                }
                // No copy of an input helps: what the kernel cannot write is the layout that its user wants.
                Err(Unsupported::NeedsContiguous { .. }) if !node.written.is_contiguous() => {
                    let wanted = std::mem::replace(&mut node.written, Layout::contiguous(&node.shape));
                    let (shape, dtype) = (node.shape.clone(), node.dtype);
                    let edge = Edge::first(self.add(node)?, Layout::contiguous(&shape));
                    return self.add(Node {
                        written: wanted,
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
        let is_empty = !new.is_empty() && new.clone().all(|result| node.written_of(result).count() == 0);
        if node.primitive.is_leaf() || is_empty {
            return Ok(Kernels::default());
        }
        let input = |edge: &Edge| OperandSpec {
            dtype: self.dtype(edge),
            layout: edge.layout.clone(),
        };
        let result = |result: usize| OperandSpec {
            dtype: node.dtype_of(result),
            layout: node.written_of(result),
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

/// Whether a copy of this input could help.
fn has_gaps(node: &Node, operand: usize) -> bool {
    let lies_well = |e: &Edge| e.layout.is_contiguous() && e.layout.offset == 0;
    node.inputs.get(operand).is_some_and(|edge| !lies_well(edge))
}

/// The kernels of a primitive over its inputs and, behind them, its new results.
fn kernels(traits: &Traits, primitive: &Primitive, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
    // What has no new result does not look at one.
    let (out, x) = operands.split_last().expect("there are operands");
    let all = || operands.iter().collect::<Vec<_>>();
    let one = Kernels::one;
    Ok(match primitive {
        Primitive::Elementwise(expression) => one(elementwise::call(traits, expression, &all())?),
        Primitive::Reduce { op, axes } => Kernels::with_workspace(reduce::calls(traits, *op, &x[0], *axes, out)?),
        Primitive::Softmax => one(softmax::call(traits, &x[0], out)?),
        Primitive::ArgMax => one(argmax::call(traits, &x[0], out)?),
        Primitive::Matmul => Kernels::chained(matmul::call(traits, &x[0], &x[1], out)?),
        Primitive::QuantMatmul { format } => {
            Kernels::chained(quantised::matmul(traits, format, &x[0], &x[1], &x[2], x.get(3), out)?)
        }
        Primitive::Projection(projection) => {
            let made = projection::calls(traits, projection, &all())?;
            Kernels {
                calls: made.calls,
                chained: made.chained,
                workspace: made.workspace,
                ..Kernels::default()
            }
        }
        Primitive::QuantTake { format } => {
            let biases = if format.has_biases() { Some(&x[2]) } else { None };
            let indices = x.last().expect("indices come last");
            one(quantised::take_rows(
                traits, format, &x[0], &x[1], biases, indices, out,
            )?)
        }
        Primitive::Take { axis } => one(take::call(traits, &x[0], &x[1], *axis, out)?),
        Primitive::Concatenate { axis } => concatenate(traits, x, *axis, out)?,
        Primitive::RmsNorm { eps, .. } => one(rms_norm::call(traits, &x[0], x.get(1), out, *eps)?),
        Primitive::Operation(operation) => operation.lower(traits, operands)?,
        Primitive::Stored { .. } | Primitive::Input { .. } => Kernels::default(),
        Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice { .. } | Primitive::Broadcast => {
            unreachable!("views are gone after canonicalise")
        }
    })
}

/// Each input copied into its part of the output.
fn concatenate(
    traits: &Traits,
    inputs: &[OperandSpec],
    axis: usize,
    out: &OperandSpec,
) -> Result<Kernels, Unsupported> {
    let mut calls = Vec::new();
    let (mut start, mut stop) = (vec![0; out.layout.rank()], out.layout.shape.clone());
    let step = vec![1; out.layout.rank()];
    for (number, x) in inputs.iter().enumerate() {
        stop[axis] = start[axis] + x.layout.shape[axis];
        let part = OperandSpec {
            dtype: out.dtype,
            layout: out.layout.slice(&start, &stop, &step),
        };
        start[axis] = stop[axis];
        if x.layout.count() == 0 {
            continue;
        }
        let mut call = elementwise::call(traits, &Expression::cast(x.dtype, out.dtype), &[x, &part])?;
        renumber(&mut call, &[number, inputs.len()]);
        calls.push(call);
    }
    Ok(Kernels {
        calls,
        ..Kernels::default()
    })
}

/// Gives a call's operands other numbers: operand `i` becomes `numbers[i]`.
pub fn renumber(call: &mut Call, numbers: &[usize]) {
    for push in &mut call.push {
        if let Push::Address { operand, .. } = push {
            *operand = numbers[*operand];
        }
    }
}
