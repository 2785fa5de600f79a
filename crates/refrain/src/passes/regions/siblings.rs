//! Joins products that read the same x, such as queries, keys and values. Their results become columns of one result.

use super::product::Product;
use super::support::SupportCache;
use crate::Layout;
use crate::graph::{Edge, Graph};

/// Joins products that read the same x into one node, at the position of the first.
pub(super) fn join(mut graph: Graph, device: &SupportCache<'_>) -> Graph {
    let mut joined = vec![false; graph.nodes.len()];
    let mut users = graph.users();
    for number in 0..graph.nodes.len() {
        if joined[number] {
            continue;
        }
        let members = siblings(&graph, &users, &joined, number, device);
        if members.len() > 1 {
            members.iter().for_each(|(member, _)| joined[*member] = true);
            merge(&mut graph, &mut users, members);
        }
    }
    graph
}

/// Product `first` and the later products that can be computed together with it.
fn siblings(
    graph: &Graph,
    users: &[Vec<usize>],
    joined: &[bool],
    first: usize,
    device: &SupportCache<'_>,
) -> Vec<(usize, Product)> {
    let Some(product) = single(graph, first, device) else {
        return Vec::new();
    };
    let mut together = vec![(first, product)];
    let readers = users[together[0].1.x().node].iter();
    for &number in readers.filter(|&&number| number > first) {
        let reads_same = graph.nodes[number].inputs.first() == Some(together[0].1.x());
        if joined[number] || !reads_same {
            continue;
        }
        let Some(product) = single(graph, number, device).filter(|p| same_input(&together[0].1, p)) else {
            continue;
        };
        // It moves up to the position of the first.
        let there = |e: &Edge| e.node < first && !graph.is_state(e);
        if product.inputs.iter().all(there) {
            together.push((number, product));
            if !combined(&together).supports(graph, device) || !readable_as_columns(graph, users, &together) {
                together.pop();
            }
        }
    }
    together
}

/// Node `number` as a product of one matrix, unless the program returns its result.
fn single(graph: &Graph, number: usize, device: &SupportCache<'_>) -> Option<Product> {
    let product = Product::of(graph, number, device)?;
    let [section] = &product.projection.sections[..] else {
        return None;
    };
    let returned = graph.outputs.iter().any(|e| e.node == number);
    (section.parts.len() == 1 && !returned).then_some(product)
}

fn same_input(a: &Product, b: &Product) -> bool {
    let norm_weight = |p: &Product| {
        let weighted = p.projection.norm.is_some_and(|n| n.weighted);
        weighted.then(|| p.inputs[1].clone())
    };
    a.x() == b.x() && a.projection.norm == b.projection.norm && norm_weight(a) == norm_weight(b) && a.dtype == b.dtype
}

/// One product with the sections of all members.
fn combined(members: &[(usize, Product)]) -> Product {
    let first = &members[0].1;
    let shared = 1 + usize::from(first.projection.norm.is_some_and(|n| n.weighted));
    let mut inputs = first.inputs[..shared].to_vec();
    let mut projection = first.projection.clone();
    projection.sections.clear();
    let mut extras = Vec::new();
    for (_, product) in members {
        let section = &product.projection.sections[0];
        let planes = shared + section.parts[0].planes();
        inputs.extend_from_slice(&product.inputs[shared..planes]);
        extras.extend_from_slice(&product.inputs[planes..]);
        projection.sections.push(section.clone());
    }
    inputs.extend(extras);
    Product {
        projection,
        inputs,
        tokens: first.tokens,
        columns: members.iter().map(|(_, p)| p.columns).sum(),
        dtype: first.dtype,
    }
}

/// For each member, the first column of its result.
fn starts(members: &[(usize, Product)]) -> Vec<usize> {
    let widths = members.iter().map(|(_, p)| p.columns);
    widths
        .scan(0, |next, width| {
            *next += width;
            Some(*next - width)
        })
        .collect()
}

/// Whether all users of the members' results can read them as columns of wider rows.
fn readable_as_columns(graph: &Graph, users: &[Vec<usize>], members: &[(usize, Product)]) -> bool {
    let width = members.iter().map(|(_, p)| p.columns).sum();
    let users = members.iter().flat_map(|(number, _)| &users[*number]);
    let mut edges = users.flat_map(|&user| &graph.nodes[user].inputs);
    edges.all(|edge| match members.iter().find(|(number, _)| *number == edge.node) {
        Some((_, product)) => as_columns(&edge.layout, product.columns, width, 0).is_some(),
        None => true,
    })
}

fn merge(graph: &mut Graph, users: &mut [Vec<usize>], members: Vec<(usize, Product)>) {
    let index = members[0].0;
    let starts = starts(&members);
    let merged = combined(&members);
    let width = merged.columns;
    let mut all: Vec<usize> = (members.iter())
        .flat_map(|(number, _)| std::mem::take(&mut users[*number]))
        .collect();
    all.sort_unstable();
    all.dedup();
    for &user in &all {
        for edge in &mut graph.nodes[user].inputs {
            if let Some(i) = members.iter().position(|(number, _)| *number == edge.node) {
                edge.layout = as_columns(&edge.layout, members[i].1.columns, width, starts[i]).expect("tried before");
                edge.node = index;
            }
        }
    }
    users[index] = all;
    graph.nodes[index] = merged.into_node();
}

/// A layout of rows of `from` elements as columns `start..` of rows of `to` elements.
fn as_columns(layout: &Layout, from: usize, to: usize, start: usize) -> Option<Layout> {
    let moved = |n: usize| n / from * to + n % from;
    // The layout must not cross from one row into the next.
    let steps = layout.shape.iter().zip(&layout.strides).filter(|(n, _)| **n > 1);
    let furthest: usize = steps.map(|(n, stride)| (n - 1) * (stride % from)).sum();
    (layout.offset % from + furthest < from).then(|| Layout {
        shape: layout.shape.clone(),
        strides: layout.strides.iter().map(|&stride| moved(stride)).collect(),
        offset: moved(layout.offset) + start,
    })
}
