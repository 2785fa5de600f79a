use std::collections::HashMap;

use insta::assert_snapshot;
use refrain::graph::Graph;
use refrain::plan::{Block, Operand, Plan};
use refrain::{Array, DType, Device, passes};

use crate::common::Random;
use crate::random::program;
use crate::{array, planned};

fn offsets(plan: &Plan) -> Vec<(Block, u64)> {
    let operands = plan
        .steps
        .iter()
        .flat_map(|step| step.inputs.iter().chain(&step.outputs).chain(&step.workspace));
    operands
        .chain(&plan.outputs)
        .map(|operand| (operand.place.block, operand.place.offset))
        .collect()
}

#[test]
fn equal_graphs_get_equal_offsets() {
    for seed in 0..40 {
        let outputs = program(&Device::cpu(), &mut Random::new(seed));
        let outputs: Vec<&Array> = outputs.iter().collect();
        let [first, second] = [planned(&outputs), planned(&outputs)];
        assert_eq!(offsets(&first), offsets(&second));
        assert_eq!(
            (first.scratch_bytes, first.to_string()),
            (second.scratch_bytes, second.to_string())
        );
    }
}

#[test]
fn a_chain_of_any_length_uses_the_memory_of_two_results() {
    let device = Device::cpu();
    let mut x = array(&device, &[64, 64]);
    for _ in 0..20 {
        x = x.softmax();
    }
    assert_eq!(planned(&[&x]).scratch_bytes, 2 * 64 * 64 * 4);
}

#[test]
fn outputs_states_and_arguments_have_their_own_blocks() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F16, &[8, 4]).unwrap();
    let x = Array::input(&device, "x", DType::F32, &[2, 4]);
    let slots = Array::input(&device, "slots", DType::I32, &[2]);
    let after = state.write_rows(&x.softmax(), &slots).write_rows(&x, &slots);
    let product = x.matmul(&after.astype(DType::F32).transpose());
    assert_snapshot!(planned(&[&product, &product.slice(1, 0, 2), &after]), @r"
       0 scratch[0] f32[2, 4] = softmax (control[0] f32[2, 4])
    ---- barrier
       1 storage0[0] f16[8, 4] = write_rows (storage0[0] f16[8, 4], scratch[0] f32[2, 4], control[256] i32[2])
    ---- barrier
       2 storage0[0] f16[8, 4] = write_rows (storage0[0] f16[8, 4], control[0] f32[2, 4], control[256] i32[2])
    ---- barrier
       3 scratch[0] f32[8, 4] = elementwise {f32(x0)} (storage0[0] f16[8, 4])
    ---- barrier
       4 output0[0] f32[2, 8] = matmul (control[0] f32[2, 4], scratch[0] f32[4, 8]/[1, 4])
    5 steps, 0 dispatches, 4 barriers, scratch 256 bytes, control 512 bytes
    ");
}

/// From the step that writes a scratch range to the last step that reads it, nothing else may write there. Checked byte
/// by byte from the plan alone.
#[test]
fn no_result_is_overwritten_before_its_last_reader() {
    for seed in 0..150 {
        let outputs = program(&Device::cpu(), &mut Random::new(seed));
        let outputs: Vec<&Array> = outputs.iter().collect();
        let graph = passes::write_through(passes::fuse(passes::overwrite(passes::canonicalise(
            Graph::trace(&outputs).unwrap(),
        ))));
        let graph = passes::order(passes::choose(graph, &Device::cpu()).unwrap()).graph;
        let plan = planned(&outputs);
        // Steps are the nodes that compute, in order.
        let computing: Vec<usize> = (0..graph.nodes.len())
            .filter(|&n| !graph.nodes[n].primitive.is_leaf())
            .collect();
        assert_eq!(computing.len(), plan.steps.len());
        // The node whose result each byte holds.
        let mut holds: HashMap<(Block, u64), usize> = HashMap::new();
        for (step, &number) in plan.steps.iter().zip(&computing) {
            for (operand, edge) in step.inputs.iter().zip(&graph.nodes[number].inputs) {
                assert_holds(&holds, operand, edge.node, seed);
            }
            for output in &step.outputs {
                bytes(output, |at| {
                    holds.insert((output.place.block, at), number);
                });
            }
        }
        for (operand, edge) in plan.outputs.iter().zip(&graph.outputs) {
            assert_holds(&holds, operand, edge.node, seed);
        }
    }
}

fn assert_holds(holds: &HashMap<(Block, u64), usize>, operand: &Operand, node: usize, seed: u64) {
    if matches!(operand.place.block, Block::Scratch | Block::Output(_)) {
        bytes(operand, |at| {
            assert_eq!(
                holds.get(&(operand.place.block, at)),
                Some(&node),
                "seed {seed}, {operand}"
            )
        });
    }
}

fn bytes(operand: &Operand, mut visit: impl FnMut(u64)) {
    let size = operand.dtype.size() as u64;
    operand.layout.for_each(|element| {
        (0..size).for_each(|byte| visit(operand.place.offset + element as u64 * size + byte));
    });
}
