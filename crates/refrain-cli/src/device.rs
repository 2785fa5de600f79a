//! Selects and opens the device.

use std::path::PathBuf;

use refrain::Device;
use refrain_vulkan::{
    DeviceChoice, DeviceInfo, DeviceKind, Error, FeatureSet, OpenOptions, Options, Vulkan, choose, rank,
};

use crate::{Global, Usage, drivers, host, load, output};

/// Name of the CPU executor in `--device`.
pub(crate) const CPU: &str = "cpu";

/// Names of the best GPU in `--device`: the choice of [`decide`], but never the CPU.
const GPU: [&str; 2] = ["gpu", "vulkan"];

/// Name of a device that computes nothing, for commands that only inspect plans.
const NULL_DEVICE: &str = "null";

/// Developer setting: if non-empty, kernels run on a compute-only queue where the device has one.
const COMPUTE_ONLY_QUEUE: &str = "REFRAIN_COMPUTE_ONLY_QUEUE";

/// Name of the simulated GPU that plans are made for on machines without one.
const SIMULATED_GPU: &str = "simulated GPU";

/// The device that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceTarget {
    Cpu,
    /// A Vulkan device, by index.
    Vulkan(usize),
}

/// The selected device and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub target: DeviceTarget,
    /// Explanation for the user.
    pub reason: String,
    /// Whether to print the reason unasked: the CPU is used although the user did not choose it.
    pub is_fallback: bool,
}

/// The available Vulkan devices; none, with the error, if Vulkan cannot be loaded.
pub(crate) struct ProbedDevices {
    vulkan: Result<Vulkan, Error>,
}

impl ProbedDevices {
    pub fn new() -> Self {
        Self {
            vulkan: Vulkan::load(Options::default()),
        }
    }

    pub fn devices(&self) -> &[DeviceInfo] {
        self.vulkan.as_ref().map_or(&[], Vulkan::devices)
    }

    /// Resolves `--device`.
    pub fn decide(&self, requested: Option<&str>) -> Result<Decision, Error> {
        decide(self.vulkan.as_ref().map(Vulkan::devices), requested)
    }

    /// Opens a device with features disabled. `timed` enables timestamp measurements.
    pub fn open(&self, target: DeviceTarget, disabled: FeatureSet, timed: bool) -> Result<Device, Error> {
        let (DeviceTarget::Vulkan(index), Ok(vulkan)) = (target, &self.vulkan) else {
            return Ok(Device::cpu());
        };
        let options = OpenOptions {
            disabled,
            cache_dir: host::cache_dir(),
            timestamps: timed,
            compute_only_queue: std::env::var_os(COMPUTE_ONLY_QUEUE).is_some_and(|set| !set.is_empty()),
            ..OpenOptions::default()
        };
        Ok(Device::vulkan(vulkan.open(index, &options)?))
    }
}

/// Resolves the requested device. By default: the best GPU, else the CPU executor, which is faster than Vulkan drivers
/// that compute on the CPU.
fn decide(devices: Result<&[DeviceInfo], &Error>, requested: Option<&str>) -> Result<Decision, Error> {
    let requested = requested.map(str::trim).unwrap_or_default();
    if requested.eq_ignore_ascii_case(CPU) {
        let reason = "requested".to_owned();
        return Ok(Decision {
            target: DeviceTarget::Cpu,
            reason,
            is_fallback: false,
        });
    }
    if GPU.iter().any(|name| requested.eq_ignore_ascii_case(name)) {
        return gpu(devices.map_err(Error::clone)?);
    }
    let Ok(choice) = requested.parse::<DeviceChoice>();
    if choice != DeviceChoice::Auto {
        let index = choose(devices.map_err(Error::clone)?, &choice)?;
        let reason = "requested".to_owned();
        return Ok(Decision {
            target: DeviceTarget::Vulkan(index),
            reason,
            is_fallback: false,
        });
    }
    let cpu = |why: String| Decision {
        target: DeviceTarget::Cpu,
        reason: why,
        is_fallback: true,
    };
    let devices = match devices {
        Ok(devices) => devices,
        Err(Error::NoLoader { .. }) => return Ok(cpu("no Vulkan loader is installed".to_owned())),
        Err(Error::NoDevice) => return Ok(cpu(no_driver(&drivers::installed()))),
        Err(error) => return Ok(cpu(error.to_string())),
    };
    Ok(match choose(devices, &DeviceChoice::Auto) {
        Ok(index) if devices[index].kind == DeviceKind::Software => cpu(format!(
            "the only Vulkan device, {}, runs on the CPU and is slower (--device {index} selects it)",
            devices[index].name
        )),
        Ok(index) => {
            let ranked = rank(devices).into_iter().find(|ranked| ranked.index == index);
            let reason = ranked.map_or(String::new(), |ranked| ranked.reason);
            Decision {
                target: DeviceTarget::Vulkan(index),
                reason,
                is_fallback: false,
            }
        }
        Err(Error::NoDevice) => cpu(no_driver(&drivers::installed())),
        Err(Error::NoUsableDevice { reasons }) => cpu(format!("no Vulkan device can be used: {reasons}")),
        Err(error) => cpu(error.to_string()),
    })
}

/// Returns the best GPU, ignoring drivers that compute on the CPU.
fn gpu(devices: &[DeviceInfo]) -> Result<Decision, Error> {
    let index = choose(devices, &DeviceChoice::Auto)?;
    match devices[index].kind {
        DeviceKind::Software => Err(Error::NoUsableDevice {
            reasons: format!(
                "{} computes on the CPU (--device {index} selects it)",
                devices[index].name
            ),
        }),
        _ => Ok(Decision {
            target: DeviceTarget::Vulkan(index),
            reason: "best GPU, as requested".to_owned(),
            is_fallback: false,
        }),
    }
}

/// Why there is no device, given the installed driver manifests.
fn no_driver(manifests: &[PathBuf]) -> String {
    let names: Vec<String> = manifests.iter().map(|path| path.display().to_string()).collect();
    match &names[..] {
        [] => "no Vulkan driver is installed".to_owned(),
        names => format!(
            "no installed Vulkan driver offers a device ({}; `refrain doctor` tries each)",
            names.join(", ")
        ),
    }
}

/// Opens the requested device. Prints a note if the CPU is used although the user did not choose it.
///
/// # Errors
/// If there is no such device, it is unusable, or its driver fails.
pub(crate) fn open(global: &Global) -> anyhow::Result<Device> {
    open_with(global, false)
}

/// As [`open`], with timestamp measurements.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_timed(global: &Global) -> anyhow::Result<Device> {
    open_with(global, true)
}

/// Opens a device for plans only. It is lowered for like the one that [`open`] opens (a simulated GPU if there is none
/// or `--device null` asks for it), but computes nothing, stores nothing and has memory for any model.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_for_plans(global: &Global) -> anyhow::Result<Device> {
    const ROOM: u64 = 1 << 50;
    let disabled = disabled(&global.disable)?;
    let requested = global.device.as_deref();
    let mut info = match requested {
        Some(requested) if requested.eq_ignore_ascii_case(NULL_DEVICE) => simulated_gpu(),
        _ => {
            let probed = ProbedDevices::new();
            match probed.decide(requested)?.target {
                DeviceTarget::Vulkan(index) => probed.devices()[index].clone(),
                DeviceTarget::Cpu if requested.is_some() => return Ok(Device::cpu()),
                DeviceTarget::Cpu => simulated_gpu(),
            }
        }
    };
    info.features = info.features.without(&disabled);
    info.limits.max_allocation_bytes = ROOM;
    for heap in &mut info.heaps {
        (heap.size, heap.budget, heap.used) = (ROOM, None, 0);
    }
    tuned(
        global,
        Device::vulkan(refrain_vulkan::Device::null_without_contents(info)),
    )
}

fn simulated_gpu() -> DeviceInfo {
    DeviceInfo::mock(SIMULATED_GPU)
}

/// Whether a device is the simulated GPU.
pub(crate) fn is_simulated(device: &Device) -> bool {
    device.name() == SIMULATED_GPU
}

fn open_with(global: &Global, timed: bool) -> anyhow::Result<Device> {
    let disabled = disabled(&global.disable)?;
    let wants_cpu = global
        .device
        .as_deref()
        .is_some_and(|requested| requested.eq_ignore_ascii_case(CPU));
    if wants_cpu {
        return Ok(Device::cpu());
    }
    let probed = ProbedDevices::new();
    let decision = probed.decide(global.device.as_deref())?;
    if decision.is_fallback && !global.quiet {
        output::eprint_line(&format!("note: {}; running on the CPU", decision.reason));
    }
    let device = tuned(global, probed.open(decision.target, disabled, timed)?)?;
    let bar = load::count_bar(global, "compiling kernels");
    device.on_compile(move |done, total| load::update_bar(&bar, done, total));
    if global.verbose {
        output::eprint_line(&format!("device: {}", describe(&device)));
    }
    Ok(device)
}

/// Applies the user's kernel tuning file, if there is one.
///
/// # Errors
/// If the file cannot be read, or the device does not support its values.
pub(crate) fn tuned(global: &Global, device: Device) -> anyhow::Result<Device> {
    let Some(file) = &global.tuning else {
        return Ok(device);
    };
    let failed = |why: &dyn std::fmt::Display| anyhow::anyhow!("--tuning {}: {why}", file.display());
    let settings = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    device.tuned(&settings).map_err(|error| failed(&error))
}

/// The device's name, and its driver if it has one.
pub(crate) fn describe(device: &Device) -> String {
    match device.as_vulkan() {
        None => device.name().to_owned(),
        Some(vulkan) => {
            let info = vulkan.info();
            format!("{} (driver {} {})", info.name, info.driver_name, info.driver_info)
        }
    }
}

/// Prints the driver's warnings and, if verbose, the work counters.
pub(crate) fn report(global: &Global, device: &Device) {
    let Some(vulkan) = device.as_vulkan().filter(|_| !global.quiet) else {
        return;
    };
    for warning in vulkan.warnings() {
        output::eprint_line(&format!("warning: {warning}"));
    }
    if global.verbose {
        let counters = vulkan.counters();
        output::eprint_line(&format!(
            "device: {} submits, {} dispatches, {} barriers; {} staged; {} shaders compiled, {} pipelines created ({} \
             from the driver's cache)",
            counters.submits,
            counters.dispatches,
            counters.barriers,
            output::human_bytes(counters.bytes_staged),
            counters.glsl_compiled,
            counters.pipelines_compiled,
            counters.pipeline_cache_hits,
        ));
    }
}

/// Parses the features of `--disable`.
pub(crate) fn disabled(names: &[String]) -> Result<FeatureSet, Usage> {
    let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
    let features = names.map(|name| name.parse().map_err(|error| Usage(format!("--disable: {error}"))));
    features.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, kind: DeviceKind) -> DeviceInfo {
        DeviceInfo {
            kind,
            ..DeviceInfo::mock(name)
        }
    }

    fn target(devices: &[DeviceInfo], requested: Option<&str>) -> DeviceTarget {
        decide(Ok(devices), requested).unwrap().target
    }

    #[test]
    fn prefers_a_gpu_to_the_cpu_executor() {
        let devices = [
            device("llvmpipe", DeviceKind::Software),
            device("card", DeviceKind::Discrete),
        ];
        assert_eq!(target(&devices, None), DeviceTarget::Vulkan(1));
        assert_eq!(target(&devices, Some("")), DeviceTarget::Vulkan(1));
        assert_eq!(target(&devices, Some("auto")), DeviceTarget::Vulkan(1));
        assert!(!decide(Ok(&devices), None).unwrap().is_fallback);
    }

    #[test]
    fn uses_a_software_driver_only_on_request() {
        let devices = [device("llvmpipe", DeviceKind::Software)];
        let decision = decide(Ok(&devices), None).unwrap();
        assert_eq!((decision.target, decision.is_fallback), (DeviceTarget::Cpu, true));
        assert!(decision.reason.contains("llvmpipe") && decision.reason.contains("--device 0"));
        assert_eq!(target(&devices, Some("0")), DeviceTarget::Vulkan(0));
        assert_eq!(target(&devices, Some("LLVM")), DeviceTarget::Vulkan(0));
    }

    #[test]
    fn gpu_selects_hardware_and_never_a_software_driver() {
        let devices = [
            device("llvmpipe", DeviceKind::Software),
            device("card", DeviceKind::Integrated),
        ];
        for requested in ["gpu", "GPU", "vulkan"] {
            assert_eq!(target(&devices, Some(requested)), DeviceTarget::Vulkan(1));
            let error = decide(Ok(&devices[..1]), Some(requested)).unwrap_err().to_string();
            assert!(error.contains("llvmpipe computes on the CPU"), "{error}");
            assert!(decide(Err(&Error::NoDevice), Some(requested)).is_err());
        }
    }

    #[test]
    fn falls_back_to_the_cpu_without_a_driver() {
        let missing = Error::NoLoader {
            reason: "not found".to_owned(),
        };
        for devices in [Ok(&[][..]), Err(&missing)] {
            let decision = decide(devices, None).unwrap();
            assert_eq!((decision.target, decision.is_fallback), (DeviceTarget::Cpu, true));
            assert_eq!(decide(devices, Some("CPU")).unwrap().target, DeviceTarget::Cpu);
            assert!(decide(devices, Some("0")).is_err());
        }
    }

    #[test]
    fn names_installed_drivers_that_offer_no_device() {
        assert_eq!(no_driver(&[]), "no Vulkan driver is installed");
        let reason = no_driver(&["/etc/vulkan/icd.d/nvidia_icd.json".into()]);
        assert!(
            reason.contains("nvidia_icd.json") && reason.contains("refrain doctor"),
            "{reason}"
        );
    }

    #[test]
    fn names_an_unusable_device_with_the_reason() {
        let mut old = device("old card", DeviceKind::Discrete);
        old.missing = vec!["Vulkan 1.3 (it has 1.1)".to_owned()];
        let decision = decide(Ok(std::slice::from_ref(&old)), None).unwrap();
        assert_eq!(decision.target, DeviceTarget::Cpu);
        assert!(decision.reason.contains("it has 1.1"), "{}", decision.reason);
        let error = decide(Ok(&[old]), Some("old")).unwrap_err().to_string();
        assert!(
            error.contains("cannot be used") && error.contains("it has 1.1"),
            "{error}"
        );
    }

    #[test]
    fn disables_features_by_name() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let set = disabled(&names(&["float16", " int8", ""])).unwrap();
        assert_eq!(set.iter().count(), 2);
        let error = disabled(&names(&["flaot16"])).unwrap_err().to_string();
        assert!(error.contains("flaot16") && error.contains("float16"), "{error}");
    }
}
