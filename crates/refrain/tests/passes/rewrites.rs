//! Rewrites and norm joining of operations from outside the crate.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use insta::assert_snapshot;
use refrain::graph::Graph;
use refrain::operation::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};
use refrain::rewrite::{Norm, Rewrite, RewriteStage};
use refrain::{Array, DType, Device, Primitive, fast, passes};

use crate::{array, fused};

/// Adds a number, optionally to the norm of its input.
#[derive(Clone, Hash, Debug)]
struct Shift {
    by: i32,
    normed: bool,
}

impl Operation for Shift {
    fn name(&self) -> &'static str {
        "shift"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        Ok(vec![(*x).clone()])
    }

    fn lower(&self, _traits: &Traits, _operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        Ok(Kernels::default())
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.compute(|inputs| match &inputs[0].values {
            Values::F32(x) => vec![Values::F32(x.iter().map(|x| x + self.by as f32).collect())],
            _ => vec![],
        });
    }

    fn detail(&self) -> String {
        format!(" by {}{}", self.by, if self.normed { " of a norm" } else { "" })
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::BeforeProducts,
            run: add_up,
        }]
    }

    fn normed(&self, _norm: Norm) -> Option<(Arc<dyn Operation>, usize)> {
        let normed = Shift { normed: true, ..*self };
        (!self.normed).then(|| (Arc::new(normed) as Arc<dyn Operation>, 1))
    }
}

/// Joins two shifts into one.
fn add_up(mut graph: Graph, _device: &Device) -> Graph {
    for number in 0..graph.nodes.len() {
        let Some(last) = graph.nodes[number].primitive.operation::<Shift>().cloned() else {
            continue;
        };
        let source = &graph.nodes[graph.nodes[number].inputs[0].node];
        if let Some(first) = source.primitive.operation::<Shift>() {
            let by = last.by + first.by;
            let inputs = source.inputs.clone();
            graph.nodes[number].primitive = Primitive::Operation(Arc::new(Shift { by, ..last }));
            graph.nodes[number].inputs = inputs;
        }
    }
    graph
}

fn shift(x: &Array, by: i32) -> Array {
    let [shifted] = Array::apply(Shift { by, normed: false }, &[x]);
    shifted
}

#[test]
fn rewrites_of_an_operation_run() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[4]);
    let graph = passes::regions(fused(&[&shift(&shift(&shift(&x, 1), 2), 3)]), &device);
    assert_snapshot!(graph, @r"
    %0 = input x f32[4] ()
    %1 = shift by 6 f32[4] (%0)
    return %1
    ");
    let x = Array::from_slice(&device, &[1.0f32, 2.0], &[2]);
    assert_eq!(shift(&shift(&x, 1), 2).to_vec::<f32>().unwrap(), [4.0, 5.0]);
}

#[test]
fn a_norm_is_joined_with_an_operation_and_a_product_that_support_it() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[2, 8]);
    let normed = fast::rms_norm(&x, Some(&array(&device, &[8])), 1e-6);
    let product = normed.matmul(&array(&device, &[4, 8]).transpose());
    let graph = passes::regions(fused(&[&shift(&normed, 1), &product]), &device);
    assert_snapshot!(graph, @r"
    %0 = input x f32[2, 8] ()
    %1 = weight f32[8] ()
    %2 = weight f32[4, 8] ()
    %3 = projection of rms_norm eps 1e-6: dense f32[2, 4] (%0, %1, %2)
    %4 = shift by 1 of a norm f32[2, 8] (%0, %1)
    return %4, %3
    ");
}
