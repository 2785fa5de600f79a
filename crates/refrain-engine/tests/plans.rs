//! Plans of models: every conflict is ordered, steps stay within their operands, and results do not depend on the
//! order between two barriers.

#[allow(dead_code)]
mod common;

use std::path::{Path, PathBuf};

use common::{TestGpu, relative_l2};
use refrain::check::{self, Timeline, run_among_poison};
use refrain::execute::Stepper;
use refrain::plan::{Block, Plan};
use refrain::{Function, LowerOptions};
use refrain_engine::{Device, Error, LoadOptions, Model, Programs};
use refrain_models::Checkpoint;
use refrain_testing::sample;
use refrain_vulkan::DeviceInfo;

/// A device that lowers like a GPU and computes nothing.
fn null() -> Device {
    let info = DeviceInfo::mock("card");
    Device::vulkan(refrain_vulkan::Device::null_without_contents(info))
}

fn load(checkpoint: &Checkpoint, device: &Device) -> Model {
    Model::load(checkpoint, device, &LoadOptions::default()).expect("loads")
}

fn synthetic(spec: &str, device: &Device) -> Model {
    load(&Checkpoint::synthetic(spec).expect("a synthetic checkpoint"), device)
}

/// With regions and without.
fn lowerings() -> [LowerOptions; 2] {
    [true, false].map(|regions| LowerOptions {
        regions,
        ..LowerOptions::default()
    })
}

/// Checkpoints of every family. Other encodings give the same program with other products.
fn families() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let entries = std::fs::read_dir(fixtures).expect("fixtures are in the repository");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut families: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with("-bf16")).collect();
    families.sort();
    families
}

#[test]
fn plans_of_every_family_order_all_conflicts() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let device = null();
    let mut proven = 0;
    for path in families() {
        let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
        let model = load(&checkpoint, &device);
        for options in lowerings() {
            let mut programs = Programs::new(&model, 32, 1).expect("fits");
            programs.set_lowering(options);
            let mut prove = |plan: &Plan, what: &str| {
                let proof = check::prove(plan);
                assert_eq!(proof.unordered, [], "{what} with {path:?}, {options:?}");
                proven += proof.ordered;
            };
            prove(programs.decode_function().expect("lowers").plan(), "decoding");
            prove(programs.prefill_function(8).expect("lowers").plan(), "a prompt");
        }
    }
    assert!(proven > 1000, "{proven} pairs");
}

#[test]
fn the_same_programs_are_lowered_once() {
    let device = null();
    for spec in ["tiny:q4_0", "tiny-hybrid:f16"] {
        let model = synthetic(spec, &device);
        let lowered = || {
            let before = device.program_counts();
            let mut programs = Programs::new(&model, 1000, 1).expect("fits");
            programs.prefill_function(8).expect("lowers");
            programs.decode_function().expect("lowers");
            let counts = device.program_counts();
            [counts.lowerings - before.lowerings, counts.hits - before.hits]
        };
        let first = lowered();
        assert!(first[0] >= 2, "{spec}: {first:?}");
        assert_eq!(lowered(), [0, first[0] + first[1]], "{spec}");
    }
}

#[test]
fn dropping_any_barrier_of_a_decode_step_is_detected() {
    let device = null();
    let models = ["tiny:q4_0", "tiny-hybrid:f16"].map(|spec| synthetic(spec, &device));
    for (model, options) in models
        .iter()
        .flat_map(|model| lowerings().map(|options| (model, options)))
    {
        let mut programs = Programs::new(model, 1000, 1).expect("fits");
        programs.set_lowering(options);
        let timeline = Timeline::of(programs.decode_function().expect("lowers").plan());
        assert!(timeline.barriers() > 10);
        for number in 0..timeline.barriers() {
            let proof = timeline.clone().without_barrier(number).prove();
            assert!(
                !proof.unordered.is_empty(),
                "barrier {number}, {:?}, {options:?}",
                model.config().family
            );
        }
    }
}

/// Blocks with their contents.
type Contents = Vec<(Block, Vec<u8>)>;

fn contents(stepper: &Stepper, wanted: impl Fn(Block) -> bool) -> Contents {
    let blocks = stepper.plan().blocks().into_iter().map(|(block, _)| block);
    let wanted = blocks.filter(|&block| wanted(block));
    wanted
        .map(|block| (block, stepper.read(block).expect("reads")))
        .collect()
}

/// Runs a function as planned, with poisoned memory, and in other orders; fails unless results and states are the
/// same.
fn assert_steady(function: &Function, arguments: &[u8], context: &str) {
    let (plan, bindings) = (function.plan(), function.bindings().clone());
    let stepper = Stepper::new(function.device(), plan.clone(), bindings).expect("memory and kernels");
    let is_state = |block| matches!(block, Block::Storage(n) if plan.leaves[n].class.is_state());
    let states = contents(&stepper, is_state);
    let results = || contents(&stepper, |block| is_state(block) || matches!(block, Block::Output(_)));
    let restore = || {
        let changed = states.iter().map(|(block, bytes)| (*block, &bytes[..]));
        for (block, bytes) in changed.chain([(Block::Control, arguments)]) {
            stepper.write(block, bytes).expect("writes");
        }
    };
    restore();
    stepper.run(&stepper.in_order()).expect("runs");
    let expected = results();
    assert!(contents(&stepper, is_state) != states, "{context}: nothing happened");
    restore();
    assert_eq!(run_among_poison(&stepper).expect("runs"), [], "{context}");
    assert!(results() == expected, "among poison, {context}");
    let mut number = 12345u64;
    let mut below = |n: usize| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) as usize % n
    };
    for _ in 0..2 {
        restore();
        let parts = stepper.shuffled(&mut below);
        stepper.run(&parts).expect("runs");
        assert!(results() == expected, "{context}: {parts:?}");
    }
    restore();
}

/// Returns the argument bytes of a prefill program for `tokens` tokens from position 0.
fn arguments(plan: &Plan, tokens: usize) -> Vec<u8> {
    let mut bytes = vec![0; plan.control_bytes as usize];
    for input in &plan.inputs {
        let words: Vec<u32> = match input.name.as_str() {
            "tokens" => (0..tokens as u32).map(|i| i * 37 % 101).collect(),
            "positions" | "pages" => (0..input.shape.iter().product::<usize>() as u32).collect(),
            "wanted" => vec![tokens as u32 - 1],
            _ => continue,
        };
        bytes[input.offset as usize..][..4 * words.len()].copy_from_slice(bytemuck::cast_slice(&words));
    }
    bytes
}

#[test]
fn decode_steps_are_stable_under_poison_and_reordering() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    let model = synthetic("tiny:q4_0", &gpu.device);
    let prompt: Vec<u32> = (0..300).map(|i| i * 37 % 257).collect();
    let mut logits = vec![];
    for options in lowerings() {
        let mut programs = Programs::new(&model, 600, 1).expect("fits");
        programs.set_lowering(options);
        logits.push(programs.begin(&prompt).expect("computes"));
        let function = programs.decode_function().expect("lowers");
        assert_steady(function, &[], &format!("{options:?}"));
    }
    let error = relative_l2(&logits[0], &logits[1]);
    assert!(error <= 5e-3, "with regions: {error:.2e}");
    gpu.assert_silent();
}

#[test]
fn prefill_and_decode_of_every_family_are_stable_under_poison_and_reordering() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let gpu = TestGpu::open();
    // These differ from others in numbers, not in what is read and written.
    let alike = ["yarn", "long", "dynamic", "images", "wide"];
    let differs = |path: &&PathBuf| !alike.iter().any(|word| path.to_string_lossy().contains(word));
    let families = families();
    for path in sample(families.iter().filter(differs), 10) {
        let checkpoint = Checkpoint::open(path).expect("a checkpoint");
        let model = load(&checkpoint, &gpu.device);
        let mut programs = Programs::new(&model, 32, 1).expect("fits");
        let function = programs.prefill_function(8).expect("lowers");
        assert_steady(function, &arguments(function.plan(), 8), &format!("a prompt, {path:?}"));
        let prompt = [1, 2, 3, 4, 5, 6, 7, 8];
        let logits = programs.begin(&prompt).expect("computes");
        let mut unfused = Programs::new(&model, 32, 1).expect("fits");
        unfused.set_lowering(lowerings()[1]);
        let error = relative_l2(&logits, &unfused.begin(&prompt).expect("computes"));
        println!("{path:?} with regions: {error:.2e}");
        assert!(error <= 5e-3, "{path:?} with regions: {error:.2e}");
        let function = programs.decode_function().expect("lowers");
        assert_steady(function, &[], &format!("decoding, {path:?}"));
    }
    gpu.assert_silent();
}

/// Returns the steps of a decode step after fusion, without operands.
fn fused_steps(spec: &str) -> Vec<String> {
    steps_of(spec, |programs| programs.decode_program("regions"))
}

/// The same for a prefill program of `tokens` tokens.
fn fused_prefill_steps(spec: &str, tokens: usize) -> Vec<String> {
    steps_of(spec, |programs| programs.prefill_program(tokens, "regions"))
}

fn steps_of(spec: &str, program: impl FnOnce(&mut Programs) -> Result<String, Error>) -> Vec<String> {
    let model = synthetic(spec, &null());
    let mut programs = Programs::new(&model, 256, 1).expect("fits");
    let program = program(&mut programs).expect("lowers");
    let leaves = ["weight", "state", "scratch", "control"];
    let steps = program.lines().filter_map(|line| {
        let (_, step) = line.split_once(" = ")?;
        let (step, _) = step.rsplit_once(" (")?;
        (!leaves.iter().any(|leaf| step.starts_with(leaf))).then(|| step.to_owned())
    });
    steps.collect()
}

fn position_of(steps: &[String], kind: &str) -> usize {
    let found = steps.iter().position(|step| step.starts_with(kind));
    found.unwrap_or_else(|| panic!("no {kind} in {steps:?}"))
}

#[test]
fn dense_layers_are_fused_to_five_regions() {
    let steps = fused_steps("tiny:q4_0");
    let layers = &steps[position_of(&steps, "projection")..];
    insta::assert_snapshot!(layers[..5].join("\n"), @r"
    projection of rms_norm eps 1e-6: q4_0 | q4_0 | q4_0 f32[1, 768]
    decode_attention of rope of q rms_norm eps 1e-6 of k rms_norm eps 1e-6 f32[1, 8, 64]
    projection q4_0 {x1 + x0} f32[1, 256]
    projection of rms_norm eps 1e-6: q4_0, q4_0 {(x1 * sigmoid(x1)) * x0} f32[1, 512]
    projection q4_0 {x1 + x0} f32[1, 256]
    ");
    let (layers, head) = layers.split_at(layers.len() - 2);
    assert_eq!(layers.len() % 5, 0, "{layers:?}");
    assert!(layers.chunks(5).all(|layer| layer == &layers[..5]), "{layers:?}");
    insta::assert_snapshot!(head.join("\n"), @r"
    projection of rms_norm eps 1e-6: q4_0 f32[1, 997]
    sample u32[1]
    ");
}

#[test]
fn dense_prefill_layers_prepare_queries_keys_and_values_in_one_step() {
    let steps = fused_prefill_steps("tiny:q4_0", 64);
    let layers = &steps[position_of(&steps, "projection")..];
    insta::assert_snapshot!(layers[..6].join("\n"), @r"
    projection of rms_norm eps 1e-6: q4_0 | q4_0 | q4_0 f32[64, 768]
    prepare_attention of rope of q rms_norm eps 1e-6 of k rms_norm eps 1e-6 f32[64, 8, 64]
    paged_attention f32[64, 8, 64]
    projection q4_0 {x1 + x0} f32[64, 256]
    projection of rms_norm eps 1e-6: q4_0, q4_0 {(x1 * sigmoid(x1)) * x0} f32[64, 512]
    projection q4_0 {x1 + x0} f32[64, 256]
    ");
    for spec in ["tiny:q4_0", "tiny-llama:q4_k_m", "tiny-hybrid:f16"] {
        let steps = fused_prefill_steps(spec, 64);
        let count = |kind: &str| steps.iter().filter(|step| step.starts_with(kind)).count();
        assert_eq!(count("prepare_attention"), count("paged_attention"), "{steps:?}");
        assert_eq!(count("rope") + count("write_rows"), 0, "{steps:?}");
    }
}

#[test]
fn prefill_weights_and_sums_experts_in_one_step() {
    let steps = fused_prefill_steps("tiny-hybrid:f16", 64);
    let sum = position_of(&steps, "expert_sum") - 3;
    insta::assert_snapshot!(steps[sum..sum + 6].join("\n"), @r"
    expert_matmul f32[64, 2, 512]
    elementwise {(x1 * sigmoid(x1)) * x0} f32[64, 2, 256]
    expert_matmul f32[64, 2, 256]
    expert_sum f32[64, 256]
    projection dense, dense {(x1 * sigmoid(x1)) * x0} f32[64, 256]
    projection dense {x1 + (x2 + (x3 * x0))} f32[64, 256]
    ");
}

#[test]
fn hybrid_layers_are_fused_to_eight_regions() {
    let steps = fused_steps("tiny-hybrid:f16");
    let first = position_of(&steps, "delta_net") - 1;
    insta::assert_snapshot!(steps[first..first + 8].join("\n"), @r"
    projection of rms_norm eps 1e-6: dense | dense {t3 = x0 + f32(x2); exp((max(t3, 0.0) + log(exp(-abs(t3)) + 1.0)) * x1)} | dense {sigmoid(x0)} | dense f32[1, 776]
    delta_net f32[1, 256]
    projection dense {x1 + x0} f32[1, 256]
    router of rms_norm eps 1e-6: dense | dense {sigmoid(x0)}, the largest 2 f32[1, 9], u32[1, 2]
    expert_projection of rms_norm eps 1e-6: each dense, dense {(x1 * sigmoid(x1)) * x0} f32[2, 256]
    projection of rms_norm eps 1e-6: dense, dense {(x1 * sigmoid(x1)) * x0} f32[1, 256]
    matmul f32[1, 256]
    expert_projection weighted by scores dense {x1 + (x0 + (x2 * x3))} f32[1, 256]
    ");
    let last = position_of(&steps, "decode_attention") - 1;
    insta::assert_snapshot!(steps[last..steps.len() - 2].join("\n"), @r"
    projection of rms_norm eps 1e-6: dense | dense | dense f32[1, 768]
    decode_attention of rope of q rms_norm eps 1e-6 of k rms_norm eps 1e-6 gated f32[1, 4, 64]
    projection dense {x1 + x0} f32[1, 256]
    router of rms_norm eps 1e-6: dense | dense {sigmoid(x0)}, the largest 2 f32[1, 9], u32[1, 2]
    expert_projection of rms_norm eps 1e-6: each dense, dense {(x1 * sigmoid(x1)) * x0} f32[2, 256]
    projection of rms_norm eps 1e-6: dense, dense {(x1 * sigmoid(x1)) * x0} f32[1, 256]
    matmul f32[1, 256]
    expert_projection weighted by scores dense {x1 + (x0 + (x2 * x3))} f32[1, 256]
    ");
}

/// Devices that lower like a GPU of an unknown vendor, and like the one that the tuning table was measured on.
fn cards() -> [Device; 2] {
    let mut h200 = DeviceInfo::mock("NVIDIA H200");
    (h200.vendor_id, h200.compute_units, h200.limits.max_push_constants) = (0x10de, Some(132), 256);
    [DeviceInfo::mock("card"), h200].map(|info| Device::vulkan(refrain_vulkan::Device::null_without_contents(info)))
}

/// Returns the dispatches and barriers of each layer of a mixture.
fn per_layer(plan: &Plan) -> Vec<[usize; 2]> {
    let shown: Vec<String> = plan.steps.iter().map(|step| step.primitive.to_string()).collect();
    // Steps before the first layer's projection do not belong to it.
    let first = position_of(&shown, "projection");
    let mut layers = Vec::new();
    let mut own = [0, 0];
    for (dispatch, barrier) in plan.order.iter().zip(plan.barriers_before()) {
        if dispatch.step < first {
            continue;
        }
        own = [own[0] + 1, own[1] + usize::from(barrier)];
        if shown[dispatch.step].starts_with("expert_projection weighted") {
            layers.push(std::mem::take(&mut own));
        }
    }
    layers
}

#[test]
fn hybrid_decode_steps_take_few_dispatches_and_barriers_and_no_copies() {
    // With little space for arguments, a layer's gates are projected separately.
    for (device, most) in cards().iter().zip([9, 8]) {
        for (spec, most) in [("tiny-hybrid:f16", 8), ("tiny-hybrid:mlx4", most)] {
            let model = synthetic(spec, device);
            let mut programs = Programs::new(&model, 256, 1).expect("fits");
            let plan = programs.decode_function().expect("lowers").plan();
            let layers = per_layer(plan);
            let what = format!("{spec} on {}: {layers:?}", device.name());
            assert_eq!(layers.len(), model.config().layers, "{what}");
            assert!(layers.iter().all(|layer| layer[0] <= most && layer[1] <= 6), "{what}");
            // Beside the layers: the embedding (two steps unless quantised), the head, and split sampling.
            assert!(plan.dispatches() <= 8 * layers.len() + 8, "{what}");
            let copies = plan.steps.iter().filter(|step| step.primitive.is_copy());
            assert_eq!(copies.count(), 0, "{what}");
        }
    }
}
