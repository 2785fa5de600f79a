//! Helpers of this crate's tests.

#[allow(dead_code, reason = "not every test fails on purpose")]
pub mod null;

use std::path::Path;

use refrain_engine::{Device, Engine, EngineOptions, LoadOptions, Model};
use refrain_models::Checkpoint;
use refrain_vulkan::{DeviceChoice, FeatureSet, OpenOptions, Options, Vulkan};

/// A Vulkan device under core and synchronization validation; `REFRAIN_GPU_ASSISTED` also checks accesses through
/// addresses. `REFRAIN_NO_VALIDATION` is for machines without the layer. Features in `REFRAIN_DISABLE` are left
/// unused, as by the program.
pub struct TestGpu {
    pub device: Device,
    vulkan: Vulkan,
}

impl TestGpu {
    /// Opens the first Vulkan device; a software one suffices (Debian: apt install mesa-vulkan-drivers).
    pub fn open() -> TestGpu {
        let options = Options {
            validation: std::env::var_os("REFRAIN_NO_VALIDATION").is_none(),
            gpu_assisted: std::env::var_os("REFRAIN_GPU_ASSISTED").is_some(),
        };
        let vulkan = Vulkan::load(options).expect("the tests need a Vulkan driver and the validation layers");
        let index = vulkan.choose(&DeviceChoice::Auto).expect("a usable device");
        let options = OpenOptions {
            disabled: disabled(),
            // Shared by all tests, so that each shader is compiled once.
            cache_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("refrain")),
            ..OpenOptions::default()
        };
        let device = vulkan.open(index, &options).expect("opens");
        TestGpu {
            device: Device::vulkan(device),
            vulkan,
        }
    }

    /// Fails if the validation layers reported anything.
    pub fn assert_silent(&self) {
        assert_eq!(self.vulkan.validation_messages(), Vec::<String>::new());
    }
}

/// Returns the features listed in `REFRAIN_DISABLE`, separated by commas.
fn disabled() -> FeatureSet {
    let listed = std::env::var("REFRAIN_DISABLE").unwrap_or_default();
    let names = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| name.parse().unwrap_or_else(|error| panic!("REFRAIN_DISABLE: {error}")))
        .collect()
}

/// Loads a synthetic model, or a fixture if the name has no format after a colon. Fixtures are small, for software
/// drivers.
#[allow(dead_code, reason = "not every test decodes")]
pub fn model(name: &str, device: &Device) -> Model {
    model_with(name, device, None)
}

/// As [`model`], with the types of keys and values.
#[allow(dead_code, reason = "not every test decodes")]
pub fn model_with(name: &str, device: &Device, types: Option<&str>) -> Model {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let checkpoint = if name.contains(':') {
        Checkpoint::synthetic(name)
    } else {
        Checkpoint::open(&fixtures.join(name))
    };
    let options = LoadOptions {
        cache: types.map(|types| types.parse().expect("types")),
        ..LoadOptions::default()
    };
    Model::load(&checkpoint.expect("a checkpoint"), device, &options).expect("loads")
}

/// An engine for one text of up to `context` tokens, whose prompts are cut into chunks of `chunk` tokens.
#[allow(dead_code, reason = "not every test needs one")]
pub fn engine(model: &Model, context: usize, chunk: usize) -> Engine {
    let options = EngineOptions {
        max_chunk: Some(chunk),
        prefix_cache: false,
        prepares: false,
        ..EngineOptions::single(context)
    };
    Engine::start(model, &options).expect("starts")
}

/// ‖a − b‖ / ‖b‖ over all positions.
#[allow(dead_code, reason = "not every test compares logits")]
pub fn relative_l2(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let error: f64 = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
        .sum();
    (error / b.iter().map(|&b| square(f64::from(b))).sum::<f64>()).sqrt()
}
