//! `refrain doctor`: what is there, what works, what is wrong and how to mend it.

mod caches;
mod features;
mod findings;
mod report;
mod system;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use refrain::Device;
use refrain::self_test::FamilyVerdict;
use refrain_engine::fit::{Fit, Needs, Offer};
use refrain_lm::self_test;
use refrain_vulkan::speed::{self, HeapSpeed};
use refrain_vulkan::{DeviceInfo, Error, Heap, LoaderVersion, MemoryClass, Vulkan};

use crate::device::{Decision, DeviceTarget, ProbedDevices};
use crate::drivers::{self, Driver};
use crate::hub::MissingFiles;
use crate::output;
use crate::{Global, device, host, load, model};
use caches::CacheFolder;
use system::{Adapter, DeviceNode};

const EXAMPLES: &str = "Examples:
  refrain doctor
  refrain doctor demo --device cpu
  refrain doctor synthetic:tiny:q4_0 --ctx 256 --json";

/// Examine drivers, device, memory and kernels; say what is wrong and how to mend it
///
/// Examines the Vulkan loader, its drivers and devices, the chosen device's memory, features and
/// limits, and the caches; and tests every kernel family against its reference. With a model: does it
/// fit, how fast can it be, and what limits it. Exits with 1 if something is broken.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A model to place on the device; its weights are not loaded, and those of a model of the hub not downloaded
    model: Option<String>,
    /// Tokens of context that the model is to hold [default: 4096, or the model's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything that was found out.
struct Examination {
    loader: Result<LoaderVersion, Error>,
    /// The loader's file.
    library: Option<String>,
    drivers: Vec<Driver>,
    devices: Vec<DeviceInfo>,
    adapters: Vec<Adapter>,
    nodes: Vec<DeviceNode>,
    caches: Vec<CacheFolder>,
    decision: Result<Decision, Error>,
    /// The chosen device, or why it could not be opened.
    opened: Option<Result<OpenedDevice, String>>,
    model: Option<ModelFit>,
}

/// The chosen device at work.
struct OpenedDevice {
    device: Device,
    /// As they were before anything was measured.
    heaps: Vec<Heap>,
    /// Reading speeds; empty on the CPU executor.
    speeds: Vec<(MemoryClass, Result<HeapSpeed, Error>)>,
    offer: Offer,
    /// Empty on the CPU executor, which is what kernels are compared with.
    verdicts: Vec<FamilyVerdict>,
}

/// A model, and how it fits the chosen device.
struct ModelFit {
    name: String,
    /// What is missing of it here, if anything.
    download: Option<MissingFiles>,
    fit: Fit,
    context: usize,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // First: a name that means no model must not cost the time of an examination.
    let described = arguments.model.as_deref().map(|name| model::describe(global, name));
    let described = described.transpose()?;
    let mut examination = examine(global)?;
    if let (Some(described), Some(Ok(opened))) = (&described, &examination.opened) {
        let checkpoint = &described.checkpoint;
        let asked = arguments.ctx.map(|context| context as usize);
        examination.model = Some(ModelFit {
            name: arguments.model.clone().unwrap_or_default(),
            download: described.download.clone(),
            fit: Fit {
                needs: Needs::of(checkpoint, &opened.device),
                offer: opened.offer,
            },
            context: load::context(checkpoint.config(), asked, 0, None)?,
        });
    }
    let findings = findings::all(&examination);
    if arguments.json {
        output::print_json(&report::json(&examination, &findings))?
    } else {
        output::print(&report::text(&examination, &findings))?
    }
    Ok(if findings.iter().any(|finding| finding.broken) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn examine(global: &Global) -> anyhow::Result<Examination> {
    let disabled = device::disabled(&global.disable)?;
    let probed = ProbedDevices::new();
    let decision = probed.decide(global.device.as_deref());
    let root = Path::new("/");
    let opened = decision.as_ref().ok().map(|decision| {
        let device = probed
            .open(decision.target, disabled, false)
            .map_err(|error| error.to_string())?;
        let device = device::tuned(global, device).map_err(|error| error.to_string())?;
        OpenedDevice::examine(global, device).map_err(|error| error.to_string())
    });
    Ok(Examination {
        loader: Vulkan::loader_version(),
        library: host::loaded_library("libvulkan.so"),
        drivers: drivers::all(),
        devices: probed.devices().to_vec(),
        adapters: system::adapters(root),
        nodes: system::nodes(root),
        caches: vec![CacheFolder::examine("compiled shaders", host::cache_dir())],
        decision,
        opened,
        model: None,
    })
}

impl OpenedDevice {
    fn examine(global: &Global, device: Device) -> Result<Self, refrain::Error> {
        let heaps = device.as_vulkan().map_or(Vec::new(), |vulkan| vulkan.heaps());
        let bar = load::count_bar(global, "testing kernels");
        let show = |done, total| load::show(&bar, done, total);
        let verdicts = if device.is_cpu() {
            Vec::new()
        } else {
            self_test::run(&device, &show)
        };
        let speeds = device.as_vulkan().map_or(Vec::new(), |vulkan| speed::of_heaps(vulkan));
        let offer = match speeds.first() {
            Some((_, Ok(speed))) => Offer::of(&device, speed.bytes_per_second)?,
            Some((_, Err(error))) => return Err(error.clone().into()),
            None => Offer::measure(&device)?,
        };
        Ok(Self {
            device,
            heaps,
            speeds,
            offer,
            verdicts,
        })
    }
}

impl Examination {
    /// The chosen Vulkan device; `None` where it is the CPU executor, or nothing.
    fn chosen(&self) -> Option<&DeviceInfo> {
        match self.decision.as_ref().ok()?.target {
            DeviceTarget::Cpu => None,
            DeviceTarget::Vulkan(index) => self.devices.get(index),
        }
    }
}
