//! Choosing and opening the device.

use std::path::PathBuf;

use refrain::Device;
use refrain_vulkan::{Choice, DeviceInfo, DeviceKind, Error, FeatureSet, OpenOptions, Options, Vulkan, choose, rank};

use crate::{Global, Usage, drivers, host, load, output};

/// The name of the CPU executor in `--device`.
pub(crate) const CPU: &str = "cpu";

/// Names of whichever GPU is best in `--device`: what [`decide`] takes by itself, but never the CPU.
const GPU: [&str; 2] = ["gpu", "vulkan"];

/// The name of a device that computes nothing, for commands that only look at programs.
const NULL: &str = "null";

/// A variable for developers: with anything in it, kernels run on a queue that draws nothing, where the device
/// has one.
const COMPUTE_ONLY_QUEUE: &str = "REFRAIN_COMPUTE_ONLY_QUEUE";

/// What stands for a GPU where there is none.
const MADE_UP: &str = "made-up card";

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceTarget {
    Cpu,
    /// The Vulkan device with this number.
    Vulkan(usize),
}

/// Which device is used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub target: DeviceTarget,
    /// For people.
    pub reason: String,
    /// Whether the reason is worth a line even if nobody asks: no GPU is used although none was
    /// forbidden.
    pub notable: bool,
}

/// The Vulkan devices there are; none, with the error, if Vulkan cannot be loaded.
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

    /// What `--device` means here.
    pub fn decide(&self, wish: Option<&str>) -> Result<Decision, Error> {
        decide(self.vulkan.as_ref().map(Vulkan::devices), wish)
    }

    /// Opens a device without the features that are switched off; `timed`: it measures what it does.
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

/// Which device `wish` means. Without a wish: the best GPU, else the CPU executor, which beats
/// Vulkan drivers that themselves compute on the CPU.
fn decide(devices: Result<&[DeviceInfo], &Error>, wish: Option<&str>) -> Result<Decision, Error> {
    let wish = wish.map(str::trim).unwrap_or_default();
    if wish.eq_ignore_ascii_case(CPU) {
        let reason = "asked for".to_owned();
        return Ok(Decision {
            target: DeviceTarget::Cpu,
            reason,
            notable: false,
        });
    }
    if GPU.iter().any(|name| wish.eq_ignore_ascii_case(name)) {
        return gpu(devices.map_err(Error::clone)?);
    }
    let Ok(choice) = wish.parse::<Choice>();
    if choice != Choice::Auto {
        let index = choose(devices.map_err(Error::clone)?, &choice)?;
        let reason = "asked for".to_owned();
        return Ok(Decision {
            target: DeviceTarget::Vulkan(index),
            reason,
            notable: false,
        });
    }
    let cpu = |why: String| Decision {
        target: DeviceTarget::Cpu,
        reason: why,
        notable: true,
    };
    let devices = match devices {
        Ok(devices) => devices,
        Err(Error::NoLoader { .. }) => return Ok(cpu("no Vulkan loader is installed".to_owned())),
        Err(Error::NoDevice) => return Ok(cpu(no_driver(&drivers::installed()))),
        Err(error) => return Ok(cpu(error.to_string())),
    };
    Ok(match choose(devices, &Choice::Auto) {
        Ok(index) if devices[index].kind == DeviceKind::Software => cpu(format!(
            "the only Vulkan driver, {}, computes on the CPU too and is slower (--device {index} \
             takes it)",
            devices[index].name
        )),
        Ok(index) => {
            let ranked = rank(devices).into_iter().find(|ranked| ranked.index == index);
            let reason = ranked.map_or(String::new(), |ranked| ranked.reason);
            Decision {
                target: DeviceTarget::Vulkan(index),
                reason,
                notable: false,
            }
        }
        Err(Error::NoDevice) => cpu(no_driver(&drivers::installed())),
        Err(Error::NoUsableDevice { reasons }) => cpu(format!("no Vulkan device can be used: {reasons}")),
        Err(error) => cpu(error.to_string()),
    })
}

/// The best GPU. Drivers that compute on the CPU have none.
fn gpu(devices: &[DeviceInfo]) -> Result<Decision, Error> {
    let index = choose(devices, &Choice::Auto)?;
    match devices[index].kind {
        DeviceKind::Software => Err(Error::NoUsableDevice {
            reasons: format!(
                "{} computes on the CPU (--device {index} takes it)",
                devices[index].name
            ),
        }),
        _ => Ok(Decision {
            target: DeviceTarget::Vulkan(index),
            reason: "the best GPU, as asked for".to_owned(),
            notable: false,
        }),
    }
}

/// Why there is no device at all, where these manifests of drivers are installed.
fn no_driver(manifests: &[PathBuf]) -> String {
    let names: Vec<String> = manifests.iter().map(|path| path.display().to_string()).collect();
    match &names[..] {
        [] => "no Vulkan driver is installed".to_owned(),
        names => format!(
            "no Vulkan driver that is installed offers a device ({}; `refrain doctor` tries each)",
            names.join(", ")
        ),
    }
}

/// Opens the device that the command line means, and says on standard error if it is the CPU
/// although no one asked for it.
///
/// # Errors
/// If there is no such device, it cannot be used, or its driver fails.
pub(crate) fn open(global: &Global) -> anyhow::Result<Device> {
    open_with(global, false)
}

/// As [`open`], a device that measures what it does.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_timed(global: &Global) -> anyhow::Result<Device> {
    open_with(global, true)
}

/// For plans alone: a device that is lowered for like the one that [`open`] opens (a made-up card where there
/// is no GPU or `--device null` asks for it), but computes nothing, keeps nothing and has room for any model.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_for_plans(global: &Global) -> anyhow::Result<Device> {
    const ROOM: u64 = 1 << 50;
    let disabled = disabled(&global.disable)?;
    let wish = global.device.as_deref();
    let mut info = match wish {
        Some(wish) if wish.eq_ignore_ascii_case(NULL) => made_up(),
        _ => {
            let probed = ProbedDevices::new();
            match probed.decide(wish)?.target {
                DeviceTarget::Vulkan(index) => probed.devices()[index].clone(),
                DeviceTarget::Cpu if wish.is_some() => return Ok(Device::cpu()),
                DeviceTarget::Cpu => made_up(),
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

fn made_up() -> DeviceInfo {
    DeviceInfo::made_up(MADE_UP)
}

/// Whether a device stands for a GPU where there is none.
pub(crate) fn is_made_up(device: &Device) -> bool {
    device.name() == MADE_UP
}

fn open_with(global: &Global, timed: bool) -> anyhow::Result<Device> {
    let disabled = disabled(&global.disable)?;
    let wants_cpu = global
        .device
        .as_deref()
        .is_some_and(|wish| wish.eq_ignore_ascii_case(CPU));
    if wants_cpu {
        return Ok(Device::cpu());
    }
    let probed = ProbedDevices::new();
    let decision = probed.decide(global.device.as_deref())?;
    if decision.notable && !global.quiet {
        output::complain(&format!("note: {}; running on the CPU executor", decision.reason));
    }
    let device = tuned(global, probed.open(decision.target, disabled, timed)?)?;
    let bar = load::count_bar(global, "compiling kernels");
    device.on_compile(move |done, total| load::show(&bar, done, total));
    if global.verbose {
        output::complain(&format!("device: {}", describe(&device)));
    }
    Ok(device)
}

/// The device with kernels that are sized as the user's file says, if there is one.
///
/// # Errors
/// A file that cannot be read, or settings that the device cannot have.
pub(crate) fn tuned(global: &Global, device: Device) -> anyhow::Result<Device> {
    let Some(file) = &global.tuning else {
        return Ok(device);
    };
    let failed = |why: &dyn std::fmt::Display| anyhow::anyhow!("--tuning {}: {why}", file.display());
    let settings = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    device.tuned(&settings).map_err(|error| failed(&error))
}

/// The device's name, with its driver if it has one.
pub(crate) fn describe(device: &Device) -> String {
    match device.as_vulkan() {
        None => device.name().to_owned(),
        Some(vulkan) => {
            let info = vulkan.info();
            format!("{} (driver {} {})", info.name, info.driver_name, info.driver_info)
        }
    }
}

/// Says what went wrong on the device without stopping anything and, if the user wants to know more,
/// what it had to do.
pub(crate) fn report(global: &Global, device: &Device) {
    let Some(vulkan) = device.as_vulkan().filter(|_| !global.quiet) else {
        return;
    };
    for warning in vulkan.warnings() {
        output::complain(&format!("warning: {warning}"));
    }
    if global.verbose {
        let counters = vulkan.counters();
        output::complain(&format!(
            "device: {} submits, {} dispatches, {} barriers; {} staged; {} shaders compiled, {} pipelines made ({} from \
             the driver's cache)",
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

/// The features named by `--disable`.
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
            ..DeviceInfo::made_up(name)
        }
    }

    fn target(devices: &[DeviceInfo], wish: Option<&str>) -> DeviceTarget {
        decide(Ok(devices), wish).unwrap().target
    }

    #[test]
    fn a_gpu_is_taken_before_the_cpu_executor() {
        let devices = [
            device("llvmpipe", DeviceKind::Software),
            device("card", DeviceKind::Discrete),
        ];
        assert_eq!(target(&devices, None), DeviceTarget::Vulkan(1));
        assert_eq!(target(&devices, Some("")), DeviceTarget::Vulkan(1));
        assert_eq!(target(&devices, Some("auto")), DeviceTarget::Vulkan(1));
        assert!(!decide(Ok(&devices), None).unwrap().notable);
    }

    #[test]
    fn a_software_driver_is_taken_only_if_asked_for() {
        let devices = [device("llvmpipe", DeviceKind::Software)];
        let decision = decide(Ok(&devices), None).unwrap();
        assert_eq!((decision.target, decision.notable), (DeviceTarget::Cpu, true));
        assert!(decision.reason.contains("llvmpipe") && decision.reason.contains("--device 0"));
        assert_eq!(target(&devices, Some("0")), DeviceTarget::Vulkan(0));
        assert_eq!(target(&devices, Some("LLVM")), DeviceTarget::Vulkan(0));
    }

    #[test]
    fn a_gpu_may_be_asked_for_as_such_and_is_none_of_software() {
        let devices = [
            device("llvmpipe", DeviceKind::Software),
            device("card", DeviceKind::Integrated),
        ];
        for wish in ["gpu", "GPU", "vulkan"] {
            assert_eq!(target(&devices, Some(wish)), DeviceTarget::Vulkan(1));
            let error = decide(Ok(&devices[..1]), Some(wish)).unwrap_err().to_string();
            assert!(error.contains("llvmpipe computes on the CPU"), "{error}");
            assert!(decide(Err(&Error::NoDevice), Some(wish)).is_err());
        }
    }

    #[test]
    fn the_cpu_executor_is_there_without_any_driver() {
        let missing = Error::NoLoader {
            reason: "not found".to_owned(),
        };
        for devices in [Ok(&[][..]), Err(&missing)] {
            let decision = decide(devices, None).unwrap();
            assert_eq!((decision.target, decision.notable), (DeviceTarget::Cpu, true));
            assert_eq!(decide(devices, Some("CPU")).unwrap().target, DeviceTarget::Cpu);
            assert!(decide(devices, Some("0")).is_err());
        }
    }

    #[test]
    fn drivers_that_are_installed_and_do_not_work_are_named() {
        assert_eq!(no_driver(&[]), "no Vulkan driver is installed");
        let told = no_driver(&["/etc/vulkan/icd.d/nvidia_icd.json".into()]);
        assert!(
            told.contains("nvidia_icd.json") && told.contains("refrain doctor"),
            "{told}"
        );
    }

    #[test]
    fn a_device_that_cannot_be_used_is_named_with_the_reason() {
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
    fn features_are_disabled_by_name() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let set = disabled(&names(&["float16", " int8", ""])).unwrap();
        assert_eq!(set.iter().count(), 2);
        let error = disabled(&names(&["flaot16"])).unwrap_err().to_string();
        assert!(error.contains("flaot16") && error.contains("float16"), "{error}");
    }
}
