use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use refrain::Device;
use refrain_vulkan::{DeviceChoice, Feature, OpenOptions, Options, Vulkan};

/// The devices that tests run on, and the messages of the validation layer.
struct Opened {
    whole: Device,
    plain: Device,
    messages: Mutex<mpsc::Sender<mpsc::Sender<Vec<String>>>>,
}

/// The devices, opened once with core and synchronisation validation. `REFRAIN_GPU_ASSISTED` also checks accesses
/// through addresses. `REFRAIN_NO_VALIDATION` is for machines without the validation layer.
fn opened() -> &'static Opened {
    static OPENED: OnceLock<Opened> = OnceLock::new();
    OPENED.get_or_init(|| {
        let (ready, devices) = mpsc::channel();
        let (messages, questions) = mpsc::channel::<mpsc::Sender<Vec<String>>>();
        // `Vulkan` must stay on the thread that loaded it.
        std::thread::spawn(move || {
            let options = Options {
                validation: std::env::var_os("REFRAIN_NO_VALIDATION").is_none(),
                gpu_assisted: std::env::var_os("REFRAIN_GPU_ASSISTED").is_some(),
            };
            let vulkan = Vulkan::load(options).expect("Vulkan and the validation layer are there");
            let index = vulkan.choose(&DeviceChoice::Auto).expect("a usable device");
            let open = |disabled: &[Feature]| {
                let disabled = disabled.iter().copied().collect();
                let options = OpenOptions {
                    disabled,
                    // Shared by all tests, so that each shader is compiled only once.
                    cache_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("refrain")),
                    ..OpenOptions::default()
                };
                Device::vulkan(vulkan.open(index, &options).expect("the device opens"))
            };
            let plain = [Feature::Storage16, Feature::Storage8, Feature::SubgroupArithmetic];
            ready.send([open(&[]), open(&plain)]).expect("a test waits");
            for question in questions {
                // A test that failed meanwhile has stopped listening.
                let _ = question.send(vulkan.validation_messages());
            }
        });
        let [whole, plain] = devices.recv().expect("tests need a Vulkan driver");
        Opened {
            whole,
            plain,
            messages: Mutex::new(messages),
        }
    })
}

/// The Vulkan device. Tests fail without one.
pub fn vulkan() -> &'static Device {
    &opened().whole
}

/// The same device without optional features.
pub fn plain() -> &'static Device {
    &opened().plain
}

/// Fails if the validation layer has reported anything so far.
pub fn assert_silent() {
    let (answer, messages) = mpsc::channel();
    let ask = opened().messages.lock().expect("asking does not fail");
    ask.send(answer).expect("Vulkan is loaded");
    assert_eq!(messages.recv().expect("Vulkan is loaded"), Vec::<String>::new());
}
