//! Fused router: a projection that also selects each token's experts.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::projection::RouterProjection;
use refrain_kernels::top_k;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::{
    ArraySpec, HostStep, JoinedProducts, Kernels, OperandSpec, Operation, TopK, Traits, Unsupported, Values,
};
use refrain::rewrite::{Replacement, computes, replace, same_elements};
use refrain::{DType, Device, Layout, Primitive};

/// (the projection's inputs) → its results `[T, Σ N]`, and the indices of the largest results of a section, u32 `[T,
/// U]`.
#[derive(Hash, Debug)]
struct FusedRouter {
    products: JoinedProducts,
    section: usize,
    /// The section's first column and number of columns.
    columns: [usize; 2],
    /// U: experts per token.
    used: usize,
}

impl FusedRouter {
    fn router(&self) -> RouterProjection {
        RouterProjection {
            projection: self.products.projection.clone(),
            section: self.section,
            count: self.used,
        }
    }
}

impl Operation for FusedRouter {
    fn name(&self) -> &'static str {
        "router"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let mut results = self.products.results(inputs)?;
        results.push(ArraySpec::new(&[self.products.shape[0], self.used], DType::U32));
        Ok(results)
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        Ok(self.router().calls(traits, &operands)?.into())
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        self.router().check(traits, &operands.iter().collect::<Vec<_>>())
    }

    fn reference(&self, step: &HostStep<'_>) {
        let results = self.products.product(&step.read());
        let ([_, width], [first, count]) = (self.products.shape, self.columns);
        let rows = results.f32().chunks(width);
        let scores = Values::F32(rows.flat_map(|row| row[first..first + count].to_vec()).collect());
        step.store(1, &Values::U32(top_k::reference(&scores, count, self.used)));
        step.store(0, &results);
    }

    fn detail(&self) -> String {
        format!(" {}", self.router())
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        self.products.multiplications(operands)
    }
}

/// Fuses each top-k over results of a projection with that projection.
pub(super) fn fuse(graph: Graph, device: &Device) -> Graph {
    let mut replacements: Vec<Option<Replacement>> = graph.nodes.iter().map(|_| None).collect();
    for number in 0..graph.nodes.len() {
        if let Some((projection, replacement)) = fused(&graph, number, device)
            && replacements[projection].is_none()
        {
            replacements[projection] = Some(replacement);
        }
    }
    replace(graph, replacements)
}

/// Returns the projection whose results top-k node `number` selects from, and the fused replacement.
fn fused(graph: &Graph, number: usize, device: &Device) -> Option<(usize, Replacement)> {
    let top_k_node = &graph.nodes[number];
    let (Some(&TopK { k, values: false }), [scores]) = (top_k_node.primitive.operation(), &top_k_node.inputs[..])
    else {
        return None;
    };
    let node = &graph.nodes[scores.node];
    let products: &JoinedProducts = node.primitive.operation()?;
    let (section, columns) = section_of(node, products, scores)?;
    let router = FusedRouter {
        products: products.clone(),
        section,
        columns,
        used: k,
    };
    let node = Node {
        primitive: Primitive::Operation(Arc::new(router)),
        extra_results: vec![ArraySpec::new(&[products.shape[0], k], DType::U32)],
        ..node.clone()
    };
    computes(graph, &node, device).then(|| {
        let replacement = Replacement {
            node,
            dropped: vec![number],
            next: vec![((number, 0), 1)],
            absorbed: None,
        };
        (scores.node, replacement)
    })
}

/// Returns the section whose results, all of each token, are `scores`, and its columns.
fn section_of(node: &Node, products: &JoinedProducts, scores: &Edge) -> Option<(usize, [usize; 2])> {
    let projection = &products.projection;
    let [tokens, width] = products.shape;
    let mut plane = 1 + usize::from(projection.norm.is_some_and(|norm| norm.weighted));
    let mut first = 0;
    for (number, section) in projection.sections.iter().enumerate() {
        let count = node.inputs[plane].layout.shape[0];
        let whole = Layout {
            shape: vec![tokens, count].into(),
            strides: vec![width, 1].into(),
            offset: first,
        };
        // The scores may have further dimensions, such as a batch.
        let seen = scores.layout.reshape(&whole.shape);
        if node.layout.is_contiguous() && seen.is_some_and(|seen| same_elements(&seen, &whole)) {
            return Some((number, [first, count]));
        }
        plane += section.parts.iter().map(|part| part.planes()).sum::<usize>();
        first += count;
    }
    None
}
