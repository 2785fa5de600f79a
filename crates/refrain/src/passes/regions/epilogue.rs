//! Joins products with an elementwise node that is their only user: a bias, a residual, a gated activation, a
//! soft-capped logit.

use refrain_kernels::elementwise::Expression;
use refrain_kernels::projection::Section;

use super::product::Product;
use super::support::SupportCache;
use crate::Primitive;
use crate::graph::{Graph, Node};
use crate::rewrite::{reordered, rows};

/// Maximum number of products that one epilogue combines.
const MAX_PRODUCTS: usize = 4;

/// Makes products part of the elementwise node that is their only user.
pub(super) fn join(mut graph: Graph, device: &SupportCache<'_>) -> Graph {
    let mut uses = graph.use_counts();
    for number in 0..graph.nodes.len() {
        if let Some(node) = joined(&graph, &uses, number, device) {
            // A joined product has no user left.
            node.inputs.iter().for_each(|e| uses[e.node] += 1);
            graph.nodes[number] = node;
        }
    }
    graph
}

/// A use of a product by an elementwise node: the input, and the first column of the product that it reads.
#[derive(Clone)]
struct ProductUse {
    input: usize,
    product: Product,
    column: usize,
}

fn joined(graph: &Graph, uses: &[usize], number: usize, device: &SupportCache<'_>) -> Option<Node> {
    let node = &graph.nodes[number];
    let Primitive::Elementwise(expression) = &node.primitive else {
        return None;
    };
    if !node.dtype.is_float() || node.shape.contains(&0) {
        return None;
    }
    let found = (0..node.inputs.len()).filter_map(|input| used(graph, uses, node, input, device));
    let found: Vec<ProductUse> = found.collect();
    // If they do not fit together, each is checked separately.
    let supported = |found: &[ProductUse]| -> Vec<ProductUse> {
        let supports = |used: &&ProductUse| used.product.supports(graph, device);
        found.iter().filter(supports).cloned().collect()
    };
    with_products(graph, node, expression, found.clone(), device)
        .or_else(|| with_products(graph, node, expression, supported(&found), device))
}

/// The node joined with as many of the products as can be computed together.
fn with_products(
    graph: &Graph,
    node: &Node,
    expression: &Expression,
    mut found: Vec<ProductUse>,
    device: &SupportCache<'_>,
) -> Option<Node> {
    // The product that is computed last, and with it those that read the same x and have the same storage.
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
    found.truncate(MAX_PRODUCTS);
    let mut product = combined(node, expression, &found)?;
    // Matrices of one format may have scales of different dtypes.
    if !product.supports(graph, device) && found.len() > 1 {
        found.truncate(1);
        product = combined(node, expression, &found)?;
    }
    product.supports(graph, device).then(|| product.into_node())
}

/// Input `input` of `node` as a use of a product, if the product has no other user.
fn used(graph: &Graph, uses: &[usize], node: &Node, input: usize, device: &SupportCache<'_>) -> Option<ProductUse> {
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

/// Number of columns of a node's result as `tokens` rows.
fn columns_of(node: &Node, tokens: usize) -> Option<usize> {
    let count: usize = node.shape.iter().product();
    count.is_multiple_of(tokens).then_some(count / tokens)
}

/// The product of all matrices, with the expression over their sums and the node's other inputs as its epilogue.
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
