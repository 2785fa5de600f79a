//! Random programs run one dispatch at a time: steps access only their operands, and the order of dispatches between
//! two barriers does not matter.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use refrain::check::run_among_poison;
use refrain::execute::Stepper;
use refrain::plan::{Block, Plan};
use refrain::{Array, Bindings, DType, Device, fast, passes};
use refrain_lm::{AttentionParams, BatchTokens, BlockFormat, causal_conv, paged_attention, slots, store_rows};
use refrain_testing::sample;

use crate::common::{Random, assert_silent, plain, vulkan};
use crate::random::program;
use crate::{hybrids, operations, regions};

/// The plan over the memory of the arrays that it was made from.
fn bound(plan: Plan, outputs: &[&Array]) -> Stepper {
    let bindings = Bindings::of(outputs).expect("evaluated arrays");
    Stepper::new(outputs[0].device(), plan, bindings).expect("memory and kernels")
}

/// A new instance of the program of a seed, with its argument written.
fn stepper(device: &Device, seed: u64, change: impl Fn(&mut Plan)) -> Stepper {
    let outputs = program(device, &mut Random::new(seed));
    let outputs: Vec<&Array> = outputs.iter().collect();
    let mut plan = passes::plan(&outputs).expect("a program that the device computes");
    change(&mut plan);
    let stepper = bound(plan, &outputs);
    let argument: Vec<f32> = (0..stepper.plan().control_bytes / 4)
        .map(|i| i as f32 / 8.0 - 0.5)
        .collect();
    stepper
        .write(Block::Control, bytemuck::cast_slice(&argument))
        .expect("writes");
    stepper
}

/// The contents of outputs and states.
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
fn steps_access_only_bytes_of_their_operands() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in sample(0..16, 6) {
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

/// Arguments with indices valid for every operation: zeros, and distinct slots where rows are written.
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

/// Runs a program in plan order, with poisoned memory and in another order. Fails unless all give the same results.
/// Returns the names and sources of its kernels.
fn assert_steady(outputs: &[&Array], random: &mut Random, context: &str) -> Vec<(Arc<str>, Arc<str>)> {
    let plan = passes::plan(outputs).expect("plans");
    let calls = plan.steps.iter().flat_map(|step| &step.calls);
    let kernels = calls
        .map(|call| (call.kernel.name.clone(), call.kernel.source().clone()))
        .collect();
    let context = format!("{context}: {plan}");
    let stepper = bound(plan, outputs);
    let states: Vec<_> = results(&stepper);
    let argument = arguments(stepper.plan());
    let restore = || {
        let changed = states.iter().map(|(block, bytes)| (*block, &bytes[..]));
        for (block, bytes) in changed.chain([(Block::Control, &argument[..])]) {
            stepper.write(block, bytes).expect("writes");
        }
    };
    restore();
    stepper.run(&stepper.in_order()).expect("runs");
    let expected = results(&stepper);
    restore();
    assert_eq!(run_among_poison(&stepper).expect("runs"), [], "{context}");
    assert!(results(&stepper) == expected, "with poisoned memory, {context}");
    restore();
    let parts = stepper.shuffled(&mut |n| random.below(n));
    stepper.run(&parts).expect("runs");
    assert!(results(&stepper) == expected, "{parts:?} of {context}");
    kernels
}

/// Attention over so many positions that several workgroups share a head, with the updates of keys and values.
fn split_attention(device: &Device) -> [Array; 3] {
    const PAGES: usize = 16;
    let tokens = BatchTokens {
        positions: &Array::from_slice(device, &[200i32], &[1]),
        sequences: &Array::input(device, "sequences", DType::U32, &[1]),
        pages: &Array::arange(device, DType::U32, PAGES).reshape(&[1, -1]),
    };
    let params = AttentionParams {
        scale: 0.125,
        page_size: 16,
        window: None,
        decode: false,
        blocks: [None; 2],
    };
    let slots = slots(tokens, 16);
    let [q, k, v] =
        [("q", 4), ("k", 2), ("v", 2)].map(|(name, heads)| Array::input(device, name, DType::F32, &[1, heads, 64]));
    let [keys, values] = [k, v].map(|rows| {
        let state = Array::state(device, DType::F16, &[16 * PAGES, 2, 64]).expect("a small state");
        state.write_rows(&rows, &slots)
    });
    let attn_out = paged_attention(&q, &keys, &values, tokens, params);
    [attn_out, keys, values]
}

/// A causal convolution of so many tokens that they are computed in parallel.
fn long_convolution(device: &Device) -> Array {
    const TOKENS: usize = 80;
    let batch = BatchTokens {
        positions: &Array::arange(device, DType::I32, TOKENS),
        sequences: &Array::zeros(device, DType::U32, &[TOKENS]),
        pages: &Array::zeros(device, DType::U32, &[1, 1]),
    };
    let [x, weights] =
        [("x", TOKENS), ("weights", 3)].map(|(name, n)| Array::input(device, name, DType::F32, &[n, 24]));
    let state = Array::state(device, DType::F32, &[1, 2, 24]).expect("a small state");
    causal_conv(&x, &weights.transpose(), batch, &state).0
}

/// Rows that are written to a cache of 8-bit blocks.
fn quantised_rows(device: &Device) -> Array {
    let format = BlockFormat::Q8_0;
    let rows = Array::input(device, "rows", DType::F32, &[3, 2, 64]);
    let state = Array::state(device, DType::U32, &[5, 2, format.words(64)]).expect("a small state");
    store_rows(&state, &rows, &Array::arange(device, DType::I32, 3), Some(format))
}

/// A product with more rows than a GEMV takes, with a norm before and a sum after it.
fn product_of_many_rows(device: &Device, random: &mut Random) -> Array {
    let weights = random.dense(device, DType::F32, &[40, 96]);
    weights.eval().expect("weights");
    let [x, residual] = [("x", 96), ("residual", 40)].map(|(name, n)| Array::input(device, name, DType::F32, &[12, n]));
    fast::rms_norm(&x, None, 1e-6).matmul(&weights.transpose()) + residual
}

/// The shader files of the kernels crate: paths and sources.
fn shaders() -> Vec<(String, String)> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../refrain-kernels/src");
    let (mut folders, mut found) = (vec![sources.clone()], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the shaders are in the repository") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "comp") {
                let name = path
                    .strip_prefix(&sources)
                    .expect("below it")
                    .to_string_lossy()
                    .into_owned();
                found.push((name, std::fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    assert!(found.len() > 20, "the shaders are not in the expected folder");
    found
}

/// Each operation in some dtype. If one source serves several expressions or formats, some of them are tested.
#[test]
fn every_kernel_accesses_only_bytes_of_its_operands() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let random = &mut Random::new(900);
    let mut kernels = HashMap::new();
    for (title, operations) in operations::sections() {
        for (number, operation) in operations.iter().enumerate() {
            let turn = DType::ALL[number % DType::ALL.len()];
            let dtypes = match title {
                "Elementwise" if number % 9 == 0 => vec![turn],
                "Reductions, products, indices, transformers" => vec![turn, DType::F32],
                "Quantised matmul of 256 rows" if number % 4 == 0 => vec![DType::F16],
                "Quantised matmul of 1 row" | "Quantised take" => vec![DType::F16],
                "Quantised experts" if number % 4 == 1 => vec![DType::F16],
                _ => vec![],
            };
            for (device, dtype) in dtypes.into_iter().map(|t| ([vulkan(), plain()][number % 2], t)) {
                let output = (operation.program)(device, dtype);
                if passes::plan(&[&output]).is_ok() {
                    let context = format!("{title}: {} of {dtype}", operation.name);
                    kernels.extend(assert_steady(&[&output], random, &context));
                }
            }
        }
    }
    for device in [vulkan(), plain()] {
        let (_, joined) = regions::attention(device, random, 1, true);
        // With this seed, queries and keys are rotated.
        let (_, prepared) = regions::attention(device, &mut Random::new(1), 3, false);
        for (outputs, context) in [
            (joined, "attention of a single token"),
            (prepared, "attention of several"),
            (split_attention(device), "in parts"),
        ] {
            kernels.extend(assert_steady(&outputs.each_ref(), random, context));
        }
        let (_, net) = hybrids::delta_net(device, random, 1);
        let (_, decoded) = hybrids::decoded_delta_net(device, random);
        let long = Array::input(device, "long", DType::F32, &[2, 700]).top_k(5);
        let long_sort = Array::input(device, "long", DType::F32, &[2, 1500]).sort(-1);
        for (outputs, context) in [
            (net.each_ref().to_vec(), "a delta net"),
            (decoded.each_ref().to_vec(), "a delta net of a step that decodes"),
            (vec![&hybrids::mixture(device, random, 1)], "a mixture"),
            (
                vec![&hybrids::mixture(device, random, 9)],
                "a mixture of several tokens",
            ),
            (vec![&long], "the largest of long rows"),
            (vec![&long_sort], "long rows in order"),
            (vec![&quantised_rows(device)], "rows in a quantised cache"),
            (vec![&long_convolution(device)], "a convolution of many tokens"),
            (
                vec![&product_of_many_rows(device, random)],
                "a product of many rows and what follows it",
            ),
        ] {
            kernels.extend(assert_steady(&outputs, random, context));
        }
    }
    assert!(kernels.len() > 60, "{} kernels", kernels.len());
    // The inbox is not part of a plan and has its own test. Matrix cores and their preparation are not available on
    // every device.
    let elsewhere = ["matrix", "fragments", "chunked", "grouped/prepare", "sequences/inbox"];
    let everywhere = |(name, _): &(String, String)| !elsewhere.iter().any(|other| name.contains(other));
    let is_tried = |text: &str| kernels.values().any(|source| source.contains(text));
    let untried = shaders().into_iter().filter(|(_, text)| !is_tried(text));
    let missing: Vec<String> = untried.filter(everywhere).map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "{missing:?} were not tried");
    assert_silent();
}

/// All operations in one program, so that dispatches of different kernels share a barrier interval.
#[test]
fn the_order_of_different_kernels_between_two_barriers_does_not_matter() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let random = &mut Random::new(901);
    for device in [vulkan(), plain()] {
        let sections = operations::sections().into_iter();
        let operations = sections.filter(|(title, _)| title.starts_with("Reductions") || title.ends_with("1 row"));
        let outputs: Vec<Array> = operations
            .flat_map(|(_, operations)| operations)
            .map(|operation| (operation.program)(device, DType::F32))
            .filter(|output| passes::plan(&[output]).is_ok())
            .collect();
        assert!(outputs.len() > 30, "{} operations", outputs.len());
        let outputs: Vec<&Array> = outputs.iter().collect();
        let plan = passes::plan(&outputs).expect("plans");
        assert!(2 * plan.barriers() < plan.steps.len(), "{plan}");
        assert_steady(&outputs, random, "all at once");
    }
    assert_silent();
}

#[test]
fn a_step_that_accesses_bytes_beyond_its_operands_is_detected() {
    let run = |change: &dyn Fn(&mut Plan)| {
        let x = Array::input(vulkan(), "x", DType::F32, &[4, 8]);
        let sums = x.softmax().sum(&[1]);
        let mut plan = passes::plan(&[&sums]).expect("plans");
        change(&mut plan);
        let stepper = bound(plan, &[&sums]);
        stepper.write(Block::Control, &[0; 128]).expect("writes");
        let writes = run_among_poison(&stepper).expect("runs");
        (writes.len(), stepper.read(Block::Output(0)).expect("reads"))
    };
    let (none, expected) = run(&|_| ());
    assert_eq!((none, expected.len()), (0, 16));
    let (beyond, _) = run(&|plan| plan.steps[0].outputs[0].layout.shape[0] = 3);
    assert_eq!(beyond, 1, "the last row is not in the operand");
    let (_, poisoned) = run(&|plan| plan.steps[1].inputs[0].layout.shape[0] = 3);
    assert_ne!(poisoned, expected, "the last row was poison");
}

#[test]
fn the_order_between_two_barriers_does_not_matter() {
    for seed in sample(0..16, 6) {
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
