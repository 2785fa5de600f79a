//! Problems found, and how to fix them.

use refrain::self_test::FamilyVerdict;
use refrain_vulkan::{DeviceKind, Error};

use super::SystemReport;
use super::system::NodeAccess;
use crate::device::DeviceTarget;
use crate::output::human_bytes;

/// A problem that the user may want to fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Whether something does not work; otherwise it only costs speed.
    pub is_error: bool,
    pub what: String,
    pub fix: String,
}

fn critical(what: impl Into<String>, fix: impl Into<String>) -> Problem {
    Problem {
        is_error: true,
        what: what.into(),
        fix: fix.into(),
    }
}

fn warning(what: impl Into<String>, fix: impl Into<String>) -> Problem {
    Problem {
        is_error: false,
        ..critical(what, fix)
    }
}

/// All problems, errors first.
pub(super) fn all(report: &SystemReport) -> Vec<Problem> {
    let mut problems: Vec<Problem> = [
        loader,
        permissions,
        drivers,
        devices,
        selection,
        kernels,
        memory,
        caches,
        model,
        disk,
    ]
    .iter()
    .flat_map(|check| check(report))
    .collect();
    problems.sort_by_key(|problem| !problem.is_error);
    problems
}

fn loader(report: &SystemReport) -> Vec<Problem> {
    let Err(error) = &report.loader else {
        return Vec::new();
    };
    let has_gpu = report.adapters.iter().any(|adapter| adapter.vendor().is_some());
    let fix = "install the Vulkan loader, version 1.3 or newer (Debian and Ubuntu: apt install libvulkan1)";
    // Without a GPU nothing is lost, because the CPU executor needs no Vulkan.
    vec![if has_gpu {
        critical(error.to_string(), fix)
    } else {
        warning("no Vulkan loader is installed, so only the CPU can be used", fix)
    }]
}

fn permissions(report: &SystemReport) -> Vec<Problem> {
    let problem = |node: &super::DeviceNode| match node.access {
        NodeAccess::Granted => None,
        NodeAccess::Denied => Some(critical(
            format!("no permission to open {}", node.path.display()),
            "add your user to the groups that own the device (usually: sudo usermod -aG render,video $USER), then log in again",
        )),
        NodeAccess::Missing => Some(critical(
            format!(
                "the system has a GPU, but the device file {} is missing",
                node.path.display()
            ),
            "in a container, pass the device through (docker: --device /dev/dri)",
        )),
    };
    report.nodes.iter().filter_map(problem).collect()
}

fn drivers(report: &SystemReport) -> Vec<Problem> {
    let problem = |driver: &super::Driver| Some(warning(driver.fault()?, driver.fix()));
    report.drivers.iter().filter_map(problem).collect()
}

fn devices(report: &SystemReport) -> Vec<Problem> {
    let real = |device: &&refrain_vulkan::DeviceInfo| device.kind != DeviceKind::Software;
    let mut problems = Vec::new();
    for device in report.devices.iter().filter(real).filter(|device| !device.usable()) {
        problems.push(critical(
            format!("{} cannot be used: it lacks {}", device.name, device.missing.join(", ")),
            format!(
                "update its driver (installed: {} {})",
                device.driver_name, device.driver_info
            ),
        ));
    }
    let mut silent: Vec<_> = report.adapters.iter().collect();
    silent.retain(|adapter| {
        !report
            .devices
            .iter()
            .filter(real)
            .any(|d| d.vendor_id == adapter.vendor)
    });
    silent.dedup();
    for adapter in silent {
        if let Some((vendor, fix)) = adapter.vendor() {
            let id = format!("{:04x}:{:04x}", adapter.vendor, adapter.device);
            problems.push(critical(format!("the {vendor} GPU ({id}) has no Vulkan driver"), fix));
        }
    }
    problems
}

fn selection(report: &SystemReport) -> Vec<Problem> {
    let failed = |error: &dyn ToString| {
        let fix = "select a device listed by `refrain devices` with --device or REFRAIN_DEVICE";
        vec![critical(error.to_string(), fix)]
    };
    match (&report.decision, &report.opened) {
        (Err(Error::NoLoader { .. }), _) if report.loader.is_err() => Vec::new(),
        (Err(error), _) => failed(error),
        (Ok(_), Some(Err(error))) => vec![critical(
            format!("the selected device fails: {error}"),
            "update its driver, or select another device with --device",
        )],
        _ => Vec::new(),
    }
}

fn kernels(report: &SystemReport) -> Vec<Problem> {
    let Some(Ok(opened)) = &report.opened else {
        return Vec::new();
    };
    let problem = |verdict: &FamilyVerdict| {
        let fault = verdict.fault.as_ref()?;
        Some(critical(
            format!(
                "the {} kernels compute wrong results on this device: {fault}",
                verdict.family
            ),
            "update the driver; if that does not help, try disabling a feature with --disable, and report the problem \
             with the output of `refrain doctor --report`",
        ))
    };
    opened.verdicts.iter().filter_map(problem).collect()
}

fn memory(report: &SystemReport) -> Vec<Problem> {
    let Some(Ok(opened)) = &report.opened else {
        return Vec::new();
    };
    let mut problems: Vec<Problem> = opened
        .speeds
        .iter()
        .filter_map(|(class, speed)| {
            let error = speed.as_ref().err()?;
            Some(critical(
                format!("cannot read {class} memory: {error}"),
                "close other programs that use GPU memory, or update the driver",
            ))
        })
        .collect();
    let local = opened.heaps.iter().enumerate().filter(|(_, heap)| heap.device_local);
    for (index, heap) in local.filter(|(_, heap)| heap.size > 1 << 30 && heap.free() < heap.size / 2) {
        let free = human_bytes(heap.free());
        problems.push(warning(
            format!("only {free} of {} is free", heap.describe(index)),
            "close other programs that use GPU memory to run larger models",
        ));
    }
    problems
}

fn caches(report: &SystemReport) -> Vec<Problem> {
    let problem = |cache: &super::CacheFolder| {
        let fault = cache.fault.as_ref()?;
        let place = cache
            .path
            .as_ref()
            .map_or(String::new(), |path| format!(" in {}", path.display()));
        Some(warning(
            format!(
                "{} cannot be cached{place} ({fault}): every start compiles them again",
                cache.what
            ),
            "make the directory writable, or set XDG_CACHE_HOME to another one",
        ))
    };
    report.caches.iter().filter_map(problem).collect()
}

fn model(report: &SystemReport) -> Vec<Problem> {
    let Some(model) = &report.model else {
        return Vec::new();
    };
    let needed = model.fit.bytes(model.context);
    let Some(free) = model.fit.capacity.free.filter(|free| needed > *free) else {
        return Vec::new();
    };
    vec![critical(
        format!(
            "{} does not fit: with a context of {} tokens it needs {}, but only {} are free ({} short)",
            model.name,
            model.context,
            human_bytes(needed),
            human_bytes(free),
            human_bytes(needed - free),
        ),
        "use a smaller or more strongly quantised model, a shorter context (--ctx) or another device (--device)",
    )]
}

fn disk(report: &SystemReport) -> Vec<Problem> {
    let download = report.model.as_ref().and_then(|model| model.download.as_ref());
    let full = download.filter(|download| download.free_space.is_some_and(|free| free < download.bytes));
    let problem = warning(
        "the cache's disk has too little free space for the download",
        "free some space (refrain list, refrain rm), or set HF_HUB_CACHE to a directory on another disk",
    );
    full.map(|_| problem).into_iter().collect()
}

/// Whether the CPU executor is selected.
pub(super) fn on_cpu(report: &SystemReport) -> bool {
    report
        .decision
        .as_ref()
        .is_ok_and(|decision| decision.target == DeviceTarget::Cpu)
}

#[cfg(test)]
mod tests {
    use refrain::Device;
    use refrain_engine::fit::{Capacity, Fit, Requirements};
    use refrain_vulkan::{DeviceInfo, Heap, LoaderVersion};

    use super::*;
    use crate::commands::doctor::caches::CacheFolder;
    use crate::commands::doctor::features::missing;
    use crate::commands::doctor::system::{Adapter, DeviceNode};
    use crate::commands::doctor::{ModelFit, OpenedDevice};
    use crate::device::Decision;
    use crate::drivers::Driver;
    use crate::hub::MissingFiles;

    /// A machine with a simulated GPU and no problems.
    fn healthy() -> SystemReport {
        let info = DeviceInfo::mock("card");
        let device = Device::vulkan(refrain_vulkan::Device::null(info.clone()));
        let decision = Decision {
            target: DeviceTarget::Vulkan(0),
            reason: String::new(),
            is_fallback: false,
        };
        let version = LoaderVersion {
            major: 1,
            minor: 3,
            patch: 0,
        };
        SystemReport {
            loader: Ok(version),
            library: None,
            drivers: Vec::new(),
            devices: vec![info.clone()],
            adapters: Vec::new(),
            nodes: Vec::new(),
            caches: Vec::new(),
            decision: Ok(decision),
            opened: Some(Ok(OpenedDevice {
                device,
                heaps: info.heaps,
                speeds: Vec::new(),
                capacity: Capacity {
                    free: Some(8 << 30),
                    bandwidth: 1e9,
                    step_seconds: 0.0,
                },
                verdicts: Vec::new(),
            })),
            model: None,
        }
    }

    fn opened(report: &mut SystemReport) -> &mut OpenedDevice {
        report.opened.as_mut().unwrap().as_mut().unwrap()
    }

    /// Returns the only problem.
    #[track_caller]
    fn only(report: &SystemReport) -> Problem {
        let problems = all(report);
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.into_iter().next().unwrap()
    }

    #[test]
    fn finds_nothing_on_a_healthy_machine() {
        assert_eq!(all(&healthy()), []);
        assert_eq!(missing(&healthy()), []);
    }

    #[test]
    fn suggests_groups_for_device_files_without_permission() {
        let mut report = healthy();
        let path = "/dev/dri/renderD128".into();
        let access = NodeAccess::Denied;
        report.nodes = vec![DeviceNode { path, access }];
        let problem = only(&report);
        assert!(problem.is_error && problem.what.contains("renderD128") && problem.fix.contains("-aG render"));
        report.nodes[0].access = NodeAccess::Missing;
        assert!(only(&report).fix.contains("--device /dev/dri"));
    }

    #[test]
    fn names_a_gpu_without_driver_and_what_to_install() {
        let mut report = healthy();
        let (vendor, device) = (0x10de, 0x2335);
        report.adapters = vec![Adapter { vendor, device }; 8];
        let problem = only(&report);
        assert!(problem.what.contains("NVIDIA GPU (10de:2335)"), "{problem:?}");
        assert!(problem.fix.contains("NVIDIA_DRIVER_CAPABILITIES"));
        report.devices[0].vendor_id = vendor;
        assert_eq!(all(&report), []);
    }

    #[test]
    fn missing_loader_is_an_error_only_with_a_gpu() {
        let mut report = healthy();
        let reason = "not found".to_owned();
        report.loader = Err(Error::NoLoader { reason });
        assert!(!only(&report).is_error);
        let (vendor, device) = (0x1234, 1);
        report.adapters = vec![Adapter { vendor, device }];
        assert!(!only(&report).is_error, "no vendor of GPUs");
        report.devices[0].vendor_id = 0x1002;
        report.adapters[0].vendor = 0x1002;
        assert!(only(&report).is_error);
    }

    #[test]
    fn wrong_kernels_are_errors_and_idle_drivers_are_not() {
        let mut report = healthy();
        opened(&mut report).verdicts = vec![FamilyVerdict {
            family: "softmax",
            compared: 3,
            worst: f32::INFINITY,
            fault: Some("f16: element 7 is 1.0 instead of 2.0".to_owned()),
        }];
        let problem = only(&report);
        assert!(problem.is_error && problem.what.contains("softmax") && problem.what.contains("element 7"));
        let driver = |devices| Driver {
            manifest: "a.json".into(),
            devices,
        };
        report.drivers = vec![driver(Ok(Vec::new())), driver(Err("no such file".to_owned()))];
        let problems = all(&report);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].is_error && !problems[1].is_error && problems[1].what.contains("no such file"));
    }

    #[test]
    fn says_how_much_memory_a_model_is_short_of() {
        let mut report = healthy();
        let capacity = opened(&mut report).capacity;
        let requirements = Requirements {
            weights: 7 << 30,
            weights_per_token: 7 << 30,
            kv_per_position: 1 << 20,
            layers: 1,
            max_context: 8192,
        };
        report.model = Some(ModelFit {
            name: "big".to_owned(),
            download: None,
            fit: Fit { requirements, capacity },
            context: 2048,
        });
        let problem = only(&report);
        assert!(
            problem.is_error
                && problem
                    .what
                    .contains("needs 9.0 GiB, but only 8.0 GiB are free (1.0 GiB short)")
        );
        let model = report.model.as_mut().unwrap();
        model.context = 1024;
        let download = |free_space| MissingFiles {
            bytes: 7 << 30,
            from: "https://huggingface.co".to_owned(),
            free_space,
        };
        model.download = Some(download(Some(6 << 30)));
        assert!(only(&report).fix.contains("HF_HUB_CACHE"));
        for free_space in [None, Some(7 << 30)] {
            report.model.as_mut().unwrap().download = Some(download(free_space));
            assert_eq!(all(&report), []);
        }
    }

    #[test]
    fn used_memory_and_unwritable_caches_are_warnings() {
        let mut report = healthy();
        opened(&mut report).heaps = vec![Heap {
            size: 8 << 30,
            device_local: true,
            budget: Some(8 << 30),
            used: 6 << 30,
        }];
        assert!(!only(&report).is_error);
        let fault = Some("read-only".to_owned());
        report.caches = vec![CacheFolder {
            what: "compiled shaders",
            path: None,
            files: 0,
            bytes: 0,
            fault,
        }];
        assert!(all(&report).iter().all(|problem| !problem.is_error));
        assert_eq!(all(&report).len(), 2);
    }
}
