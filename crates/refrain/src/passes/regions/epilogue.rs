//! Products, and the elementwise node that alone uses them: a bias, a residual, an activation times a
//! gate, a bent logit.

use refrain_kernels::elementwise::Expression;
use refrain_kernels::projection::Section;

use super::asked::AskedDevice;
use super::product::Product;
use crate::Primitive;
use crate::graph::{Graph, Node};
use crate::rewrite::{reordered, rows};

/// The most products whose sums one epilogue joins.
const MOST_PARTS: usize = 4;

/// Makes products a part of the elementwise node that is their only user.
pub(super) fn join(mut graph: Graph, device: &AskedDevice<'_>) -> Graph {
    let mut uses = graph.use_counts();
    for number in 0..graph.nodes.len() {
        if let Some(node) = joined(&graph, &uses, number, device) {
            // A product that was joined has no user left.
            node.inputs.iter().for_each(|e| uses[e.node] += 1);
            graph.nodes[number] = node;
        }
    }
    graph
}

/// A use of a product by an elementwise node: which input it is, and from which column on it is seen.
#[derive(Clone)]
struct ProductUse {
    input: usize,
    product: Product,
    column: usize,
}

fn joined(graph: &Graph, uses: &[usize], number: usize, device: &AskedDevice<'_>) -> Option<Node> {
    let node = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    if !node.dtype.is_float() || node.shape.contains(&0) {
        return None;
    }
    let found = (0..node.inputs.len()).filter_map(|input| used(graph, uses, node, input, device));
    let found: Vec<ProductUse> = found.collect();
    // Each is looked at by itself where they do not go together.
    let alone = |found: &[ProductUse]| -> Vec<ProductUse> {
        let computes = |used: &&ProductUse| used.product.computes(graph, device);
        found.iter().filter(computes).cloned().collect()
    };
    with_products(graph, node, expression, found.clone(), device)
        .or_else(|| with_products(graph, node, expression, alone(&found), device))
}

/// The node with those of the products that go together.
fn with_products(
    graph: &Graph,
    node: &Node,
    expression: &Expression,
    mut found: Vec<ProductUse>,
    device: &AskedDevice<'_>,
) -> Option<Node> {
    // The product that is computed last; with it those that read the same and are stored alike.
    let last = found.iter().max_by_key(|u| node.inputs[u.input].node)?;
    let (x, parts) = (
        last.product.x().clone(),
        last.product.projection.sections[0].parts.clone(),
    );
    let tokens = last.product.tokens;
    found.retain(|u| {
        let p = &u.product;
        *p.x() == x && p.projection.sections[0].parts == parts && p.tokens == tokens
    });
    found.truncate(MOST_PARTS);
    let mut product = combined(node, expression, &found)?;
    // Matrices of one format may still have scales of several dtypes.
    if !product.computes(graph, device) && found.len() > 1 {
        found.truncate(1);
        product = combined(node, expression, &found)?;
    }
    product.computes(graph, device).then(|| product.into_node())
}

/// Input `input` of `node` as the use of a product that nothing else uses.
fn used(graph: &Graph, uses: &[usize], node: &Node, input: usize, device: &AskedDevice<'_>) -> Option<ProductUse> {
    let edge = &node.inputs[input];
    let own = node.inputs.iter().filter(|e| e.node == edge.node).count();
    if uses[edge.node] != own {
        return None;
    }
    let product = Product::of(graph, edge.node, device).filter(Product::is_plain)?;
    let columns = columns_of(node, product.tokens)?;
    let seen = edge.layout.reshape(&[product.tokens, columns])?;
    let rows = product.tokens == 1 || seen.strides[0] == product.columns;
    let together = columns == 1 || seen.strides[1] == 1;
    let inside = seen.offset + columns <= product.columns;
    (rows && together && inside).then_some(ProductUse {
        input,
        product,
        column: seen.offset,
    })
}

/// Columns of a node's result seen as `tokens` rows.
fn columns_of(node: &Node, tokens: usize) -> Option<usize> {
    let count: usize = node.shape.iter().product();
    count.is_multiple_of(tokens).then_some(count / tokens)
}

/// The products and the expression over their sums and the node's other inputs.
fn combined(node: &Node, expression: &Expression, uses: &[ProductUse]) -> Option<Product> {
    let first = &uses[0].product;
    let tokens = first.tokens;
    let columns = columns_of(node, tokens)?;
    let others = (0..node.inputs.len()).filter(|n| uses.iter().all(|u| u.input != *n));
    let order: Vec<usize> = uses.iter().map(|u| u.input).chain(others).collect();
    let mut inputs = vec![first.x().clone()];
    for used in uses {
        let planes = &used.product.inputs[1..];
        inputs.extend(planes.iter().map(|edge| rows(edge, used.column, columns)));
    }
    for &other in &order[uses.len()..] {
        let edge = &node.inputs[other];
        inputs.push(edge.through(edge.layout.reshape(&[tokens, columns])?));
    }
    let mut projection = first.projection.clone();
    projection.sections = vec![Section {
        parts: uses.iter().map(|u| u.product.projection.sections[0].parts[0]).collect(),
        epilogue: reordered(expression, &order),
    }];
    Some(Product {
        projection,
        inputs,
        tokens,
        columns,
        dtype: node.dtype,
    })
}
