//! Random programs one dispatch at a time: steps keep to their operands, and the order between two
//! barriers does not matter.

use half::{bf16, f16};
use refrain::check::run_among_poison;
use refrain::execute::Stepper;
use refrain::plan::{Block, Plan};
use refrain::{Array, DType, Device, passes};

use crate::common::{Random, assert_silent, plain, vulkan};
use crate::operations;
use crate::random::program;

/// A program, fresh, with its argument.
fn stepper(device: &Device, seed: u64, change: impl Fn(&mut Plan)) -> Stepper {
    let outputs = program(device, &mut Random::new(seed));
    let mut plan = passes::plan(&outputs.iter().collect::<Vec<_>>()).expect("a program that the device computes");
    change(&mut plan);
    let stepper = Stepper::new(plan).expect("memory and kernels");
    let argument: Vec<f32> = (0..stepper.plan().control_bytes / 4)
        .map(|i| i as f32 / 8.0 - 0.5)
        .collect();
    stepper
        .write(Block::Control, bytemuck::cast_slice(&argument))
        .expect("writes");
    stepper
}

/// Results and states.
fn results(stepper: &Stepper) -> Vec<(Block, Vec<u8>)> {
    let blocks = stepper.plan().blocks().into_iter().map(|(block, _)| block);
    let kept = blocks.filter(|block| matches!(block, Block::Output(_) | Block::Storage(_)));
    kept.map(|block| (block, stepper.read(block).expect("reads"))).collect()
}

fn in_order(device: &Device, seed: u64) -> Vec<(Block, Vec<u8>)> {
    let stepper = stepper(device, seed, |_| ());
    stepper.run(&stepper.in_order()).expect("runs");
    results(&stepper)
}

#[test]
fn steps_touch_no_bytes_but_those_of_their_operands() {
    for seed in 0..16 {
        for device in [vulkan(), plain()] {
            let alone = stepper(device, seed, |_| ());
            assert_eq!(
                run_among_poison(&alone).expect("runs"),
                [],
                "seed {seed}: {}",
                alone.plan()
            );
            assert!(
                results(&alone) == in_order(device, seed),
                "seed {seed}: {}",
                alone.plan()
            );
        }
    }
    assert_silent();
}

/// Arguments with indices that every operation takes: zeros, and where rows are written, each row once.
fn arguments(plan: &Plan) -> Vec<u8> {
    let mut bytes = vec![0; plan.control_bytes as usize];
    for input in &plan.inputs {
        let count = input.shape.iter().product::<usize>();
        let values = (0..count).map(|i| (i % 23) as f32 / 8.0 - 1.0);
        let encoded: Vec<u8> = match input.dtype {
            DType::F32 => values.flat_map(f32::to_le_bytes).collect(),
            DType::F16 => values.flat_map(|v| f16::from_f32(v).to_le_bytes()).collect(),
            DType::BF16 => values.flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect(),
            DType::I32 => (0..count as i32).flat_map(i32::to_le_bytes).collect(),
            _ => continue,
        };
        bytes[input.offset as usize..][..encoded.len()].copy_from_slice(&encoded);
    }
    bytes
}

/// Operations in a dtype of their turn. What one text computes with another expression or another way to
/// unpack values is tried for some.
#[test]
fn every_kernel_touches_no_bytes_but_those_of_its_operands() {
    let mut kernels = std::collections::HashSet::new();
    for (title, operations) in operations::sections() {
        for (number, operation) in operations.iter().enumerate() {
            let turn = DType::ALL[number % DType::ALL.len()];
            let dtypes = match title {
                "Elementwise" if number % 9 == 0 => vec![turn],
                "Reductions, products, indices, transformers" => vec![turn, DType::F32],
                "Quantised matmul of 256 rows" if number % 4 == 0 => vec![DType::F16],
                "Quantised matmul of 1 row" | "Quantised take" => vec![DType::F16],
                _ => vec![],
            };
            for (device, dtype) in dtypes.into_iter().map(|t| ([vulkan(), plain()][number % 2], t)) {
                let Ok(plan) = passes::plan(&[&(operation.program)(device, dtype)]) else {
                    continue;
                };
                kernels.extend(plan.steps.iter().flat_map(|s| &s.calls).map(|c| c.kernel.name.clone()));
                let stepper = Stepper::new(plan).expect("memory and kernels");
                let states: Vec<_> = results(&stepper);
                let argument = arguments(stepper.plan());
                stepper.write(Block::Control, &argument).expect("writes");
                stepper.run(&stepper.in_order()).expect("runs");
                let expected = results(&stepper);
                states
                    .iter()
                    .for_each(|(block, bytes)| stepper.write(*block, bytes).expect("writes"));
                let context = format!("{title}: {} of {dtype}: {}", operation.name, stepper.plan());
                assert_eq!(run_among_poison(&stepper).expect("runs"), [], "{context}");
                assert!(results(&stepper) == expected, "{context}");
            }
        }
    }
    assert!(kernels.len() > 60, "{} kernels", kernels.len());
    assert_silent();
}

#[test]
fn a_step_that_writes_or_reads_beyond_its_operands_is_noticed() {
    let program = |device: &Device| {
        let x = Array::input(device, "x", DType::F32, &[4, 8]);
        passes::plan(&[&x.softmax().sum(&[1])]).expect("plans")
    };
    let run = |change: &dyn Fn(&mut Plan)| {
        let mut plan = program(vulkan());
        change(&mut plan);
        let stepper = Stepper::new(plan).expect("memory and kernels");
        stepper.write(Block::Control, &[0; 128]).expect("writes");
        let trespasses = run_among_poison(&stepper).expect("runs");
        (trespasses.len(), stepper.read(Block::Output(0)).expect("reads"))
    };
    let (none, expected) = run(&|_| ());
    assert_eq!((none, expected.len()), (0, 16));
    let (beyond, _) = run(&|plan| plan.steps[0].output.layout.shape[0] = 3);
    assert_eq!(beyond, 1, "the last row is not in the operand");
    let (_, poisoned) = run(&|plan| plan.steps[1].inputs[0].layout.shape[0] = 3);
    assert_ne!(poisoned, expected, "the last row was poison");
}

#[test]
fn the_order_between_two_barriers_does_not_matter() {
    for seed in 0..16 {
        let expected = in_order(vulkan(), seed);
        let mut random = Random::new(1000 + seed);
        for _ in 0..2 {
            let stepper = stepper(vulkan(), seed, |_| ());
            let parts = stepper.shuffled(&mut |n| random.below(n));
            stepper.run(&parts).expect("runs");
            assert!(
                results(&stepper) == expected,
                "seed {seed}: {parts:?} of {}",
                stepper.plan()
            );
        }
    }
    assert_silent();
}
