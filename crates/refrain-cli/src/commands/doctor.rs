//! `refrain doctor`: checks drivers, device, memory and kernels, and says how to fix problems.

mod caches;
mod features;
mod problems;
mod report;
mod system;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use refrain::Device;
use refrain::self_test::FamilyVerdict;
use refrain_engine::CacheTypes;
use refrain_engine::fit::{Capacity, Fit, Requirements};
use refrain_lm::self_test;
use refrain_vulkan::speed::{self, HeapBandwidth};
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
  refrain doctor synthetic:tiny:q4_0 --ctx 256 --json
  refrain doctor --report";

/// Check drivers, device, memory and kernels, and say how to fix problems
///
/// Checks the Vulkan loader, drivers and devices, the selected device's memory, features and limits, and the caches,
/// and tests every kernel family against its reference. With a model: whether it fits, how fast it can be, and what
/// limits its speed. Exits with 1 if something is broken.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A model to check against the device; its weights are neither downloaded nor loaded
    model: Option<String>,
    /// Context length in tokens to check the model with [default: 4096, or the model's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Print Markdown for a bug report: the version, the build, and what was examined
    #[arg(long, conflicts_with = "json")]
    report: bool,
}

/// Everything that was examined.
struct SystemReport {
    loader: Result<LoaderVersion, Error>,
    /// Path of the loader library.
    library: Option<String>,
    drivers: Vec<Driver>,
    devices: Vec<DeviceInfo>,
    adapters: Vec<Adapter>,
    nodes: Vec<DeviceNode>,
    caches: Vec<CacheFolder>,
    decision: Result<Decision, Error>,
    /// The selected device, or the error on opening it.
    opened: Option<Result<OpenedDevice, String>>,
    model: Option<ModelFit>,
}

/// The selected device and its measurements.
struct OpenedDevice {
    device: Device,
    /// Memory heaps before the measurements.
    heaps: Vec<Heap>,
    /// Read bandwidths; empty on the CPU executor.
    speeds: Vec<(MemoryClass, Result<HeapBandwidth, Error>)>,
    capacity: Capacity,
    /// Kernel test results; empty on the CPU executor, which is the reference.
    verdicts: Vec<FamilyVerdict>,
}

/// A model, and how it fits the selected device.
struct ModelFit {
    name: String,
    /// What is still to download, if anything.
    download: Option<MissingFiles>,
    fit: Fit,
    context: usize,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // First, so that a wrong name fails before the slow measurements.
    let described = arguments.model.as_deref().map(|name| model::describe(global, name));
    let described = described.transpose()?;
    let mut report = SystemReport::collect(global)?;
    if let (Some(described), Some(Ok(opened))) = (&described, &report.opened) {
        let checkpoint = &described.checkpoint;
        let requested = arguments.ctx.map(|context| context as usize);
        report.model = Some(ModelFit {
            name: arguments.model.clone().unwrap_or_default(),
            download: described.download.clone(),
            fit: Fit {
                requirements: Requirements::of(checkpoint, CacheTypes::of_device(&opened.device)),
                capacity: opened.capacity,
            },
            context: load::context(checkpoint.config(), requested, 0, None)?,
        });
    }
    let problems = problems::all(&report);
    if arguments.json {
        output::print_json(&report::json(&report, &problems))?
    } else if arguments.report {
        output::print(&report::markdown(&report, &problems))?
    } else {
        output::print(&report::text(&report, &problems))?
    }
    Ok(if problems.iter().any(|problem| problem.is_error) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl OpenedDevice {
    fn measure(global: &Global, device: Device) -> Result<Self, refrain::Error> {
        let heaps = device.as_vulkan().map_or(Vec::new(), |vulkan| vulkan.heaps());
        let bar = load::count_bar(global, "testing kernels");
        let show = |done, total| load::update_bar(&bar, done, total);
        let verdicts = if device.is_cpu() {
            Vec::new()
        } else {
            self_test::run(&device, &show)
        };
        let speeds = device
            .as_vulkan()
            .map_or(Vec::new(), |vulkan| speed::measure_heaps(vulkan));
        let capacity = match speeds.first() {
            Some((_, Ok(speed))) => Capacity::of(&device, speed.bytes_per_second)?,
            Some((_, Err(error))) => return Err(error.clone().into()),
            None => Capacity::measure(&device)?,
        };
        Ok(Self {
            device,
            heaps,
            speeds,
            capacity,
            verdicts,
        })
    }
}

impl SystemReport {
    fn collect(global: &Global) -> anyhow::Result<Self> {
        let disabled = device::disabled(&global.disable)?;
        let probed = ProbedDevices::new();
        let decision = probed.decide(global.device.as_deref());
        let root = Path::new("/");
        let opened = decision.as_ref().ok().map(|decision| {
            let device = probed
                .open(decision.target, disabled, false)
                .map_err(|error| error.to_string())?;
            let device = device::tuned(global, device).map_err(|error| error.to_string())?;
            OpenedDevice::measure(global, device).map_err(|error| error.to_string())
        });
        Ok(Self {
            loader: Vulkan::loader_version(),
            library: host::loaded_library("libvulkan.so"),
            drivers: drivers::all(),
            devices: probed.devices().to_vec(),
            adapters: system::adapters(root),
            nodes: system::nodes(root),
            caches: vec![CacheFolder::inspect("compiled shaders", host::cache_dir())],
            decision,
            opened,
            model: None,
        })
    }

    /// The selected Vulkan device; `None` if the CPU executor is selected, or nothing.
    fn selected(&self) -> Option<&DeviceInfo> {
        match self.decision.as_ref().ok()?.target {
            DeviceTarget::Cpu => None,
            DeviceTarget::Vulkan(index) => self.devices.get(index),
        }
    }
}
