//! The kernels that models use on a GPU, collected without the GPU.

use std::collections::HashSet;
use std::path::Path;

use refrain_engine::{Device, LoadOptions, Model, Programs};
use refrain_models::Checkpoint;
use refrain_vulkan::{DeviceInfo, Heap, Kernel, NullEvent, NullOptions};

/// Every structure in every kind of format, and shapes of published models.
const SYNTHETIC: &[&str] = &[
    "tiny:f16",
    "tiny:bf16",
    "tiny:q4_0",
    "tiny:q5_1",
    "tiny:q8_0",
    "tiny:q2_k",
    "tiny:q3_k",
    "tiny:q4_k_m",
    "tiny:q5_k",
    "tiny:iq4_nl",
    "tiny:iq4_xs",
    "tiny:mxfp4",
    "tiny:mlx3",
    "tiny:mlx4",
    "tiny-llama:q4_k_m",
    "tiny-mixture:q4_k_m",
    "tiny-mixture:mxfp4",
    "tiny-glm-moe:q4_k_m",
    "tiny-cohere:q8_0",
    "tiny-hybrid-dense:q8_0",
    "tiny-hybrid:f16",
    "tiny-hybrid:mlx4",
    "qwen3-8b:q4_k_m",
    "llama-3.1-8b:q4_0",
    "granite-3.3-8b:q8_0",
    "starcoder2-3b:q4_k_m",
    "qwen3-30b-a3b:q4_k_m",
    "qwen3.5-9b:q4_k_m",
    "qwen3.5-35b-a3b:mlx4",
];

/// Returns the kernels of all models on a GPU like `info` with `lanes` lanes per subgroup, without duplicates.
pub fn of_models(info: &DeviceInfo, lanes: u32) -> Vec<Kernel> {
    const ROOM: u64 = 1 << 50;
    let mut info = info.clone();
    // Absent hardware has no memory.
    let memory = DeviceInfo::mock("memory");
    let roomy = |heap: Heap| Heap { size: ROOM, ..heap };
    info.heaps = memory.heaps.into_iter().map(roomy).collect();
    info.memory_types = memory.memory_types;
    info.limits.max_allocation_bytes = ROOM;
    info.limits.subgroup_size = lanes;
    // The null device does not need the driver's pipeline cache, which is slow to read.
    info.driver_info = "null".to_owned();
    let options = NullOptions {
        without_contents: true,
        cache_dir: Some(super::tmp("refrain")),
        ..NullOptions::default()
    };
    let device = Device::vulkan(refrain_vulkan::Device::null_with(info, options));
    for spec in SYNTHETIC {
        lower(&Checkpoint::synthetic(spec).expect("a synthetic checkpoint"), &device);
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let entries = std::fs::read_dir(fixtures).expect("fixtures are in the repository");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut families: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with("-bf16")).collect();
    families.sort();
    for path in families {
        lower(&Checkpoint::open(&path).expect("a checkpoint"), &device);
    }
    let events = device.as_vulkan().expect("a null device").recorded();
    let kernel = |event| match event {
        NullEvent::Pipeline { kernel } => Some(kernel),
        _ => None,
    };
    let mut seen = HashSet::new();
    let kernels = events.into_iter().filter_map(kernel);
    kernels.filter(|kernel| seen.insert(kernel.clone())).collect()
}

/// Lowers the programs for decoding one sequence, of hybrids also several, and for prompts of all lengths.
fn lower(checkpoint: &Checkpoint, device: &Device) {
    let model = Model::load(checkpoint, device, &LoadOptions::default()).expect("loads");
    let context = 4096.min(checkpoint.config().max_position);
    let mut programs = Programs::new(&model, context, 1).expect("fits");
    make(&mut programs);
    for tokens in [1, 2, 4, 8, 16, 64, 512]
        .into_iter()
        .filter(|&tokens| tokens <= context)
    {
        programs.prefill_function(tokens).expect("lowers");
    }
    // Recurrences have a kernel for several sequences with one token each.
    if checkpoint.config().recurrent_bytes() > 0 {
        let mut programs = Programs::new(&model, context, 4).expect("fits");
        make(&mut programs);
    }
}

/// Makes the kernels of a decode step, and of the messages before it.
fn make(programs: &mut Programs) {
    let step = programs.decode_function().expect("lowers");
    let tape = step.tape(step.device().executors()[0]).expect("compiles");
    tape.prepare_writes().expect("compiles");
}
