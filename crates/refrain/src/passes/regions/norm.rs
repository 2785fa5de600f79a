//! A norm whose result products alone read: each computes it for itself.

use refrain_kernels::projection::Norm;

use super::experts;
use super::product::Product;
use crate::graph::{Edge, Graph, Node};
use crate::passes::fuse::is_state;
use crate::{DType, Device, Primitive};

/// Makes norms a part of the products that are their only users.
pub(super) fn join(mut graph: Graph, device: &Device) -> Graph {
    for number in 0..graph.nodes.len() {
        for (user, node) in joined(&graph, number, device).unwrap_or_default() {
            graph.nodes[user] = node;
        }
    }
    graph
}

/// The users of norm `number` with the norm made part of them, if all of them can have it.
fn joined(graph: &Graph, number: usize, device: &Device) -> Option<Vec<(usize, Node)>> {
    let norm = &graph.nodes[number];
    let Primitive::RmsNorm { eps, weighted } = norm.primitive else {
        return None;
    };
    let source = &norm.inputs[0];
    let exact = norm.dtype == DType::F32 && graph.nodes[source.node].dtype == DType::F32;
    if !exact || is_state(graph, source) || graph.outputs.iter().any(|e| e.node == number) {
        return None;
    }
    let users = (number..graph.nodes.len()).filter(|&n| graph.nodes[n].inputs.iter().any(|e| e.node == number));
    users
        .map(|user| {
            if let Primitive::ExpertProjection(_) = graph.nodes[user].primitive {
                return experts::normed(graph, user, number).map(|node| (user, node));
            }
            let reads = graph.nodes[user].inputs.iter().filter(|e| e.node == number).count();
            let mut product = Product::of(graph, user, device)?;
            let x = product.x();
            let whole = x.node == number && x.layout.is_contiguous() && x.layout.count() == norm.written.count();
            let columns = norm.shape.last() == Some(&product.depth());
            if reads != 1 || !whole || !columns || product.projection.norm.is_some() {
                return None;
            }
            let layout = source.layout.reshape(&x.layout.shape)?;
            product.projection.norm = Some(Norm { eps, weighted });
            let mut inputs = vec![Edge {
                node: source.node,
                layout,
            }];
            inputs.extend(norm.inputs[1..].iter().cloned());
            inputs.extend(product.inputs.drain(1..));
            product.inputs = inputs;
            product.computes(graph, device).then(|| (user, product.into_node()))
        })
        .collect()
}
