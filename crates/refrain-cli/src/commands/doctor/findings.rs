//! What is wrong, and how to mend it.

use refrain::self_test::FamilyVerdict;
use refrain_vulkan::{DeviceKind, Error};

use super::Examination;
use super::system::NodeAccess;
use crate::device::DeviceTarget;
use crate::output::human_bytes;

/// Something that the user may want to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Whether it keeps something from working, and does not only cost speed.
    pub broken: bool,
    pub what: String,
    pub mend: String,
}

fn broken(what: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding {
        broken: true,
        what: what.into(),
        mend: mend.into(),
    }
}

fn worse(what: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding {
        broken: false,
        ..broken(what, mend)
    }
}

/// All findings, the broken things first.
pub(super) fn all(examination: &Examination) -> Vec<Finding> {
    let mut findings: Vec<Finding> = [
        loader,
        permissions,
        drivers,
        devices,
        choice,
        kernels,
        memory,
        caches,
        model,
        disk,
    ]
    .iter()
    .flat_map(|examine| examine(examination))
    .collect();
    findings.sort_by_key(|finding| !finding.broken);
    findings
}

fn loader(examination: &Examination) -> Vec<Finding> {
    let Err(error) = &examination.loader else {
        return Vec::new();
    };
    let has_gpu = examination.adapters.iter().any(|adapter| adapter.vendor().is_some());
    let mend = "install the Vulkan loader, version 1.3 or newer (Debian and Ubuntu: apt install libvulkan1)";
    // Without a GPU nothing is lost: the CPU executor needs no Vulkan.
    vec![if has_gpu {
        broken(error.to_string(), mend)
    } else {
        worse("there is no Vulkan loader, so only the CPU executor can be used", mend)
    }]
}

fn permissions(examination: &Examination) -> Vec<Finding> {
    let finding = |node: &super::DeviceNode| match node.access {
        NodeAccess::Granted => None,
        NodeAccess::Denied => Some(broken(
            format!("this user may not open {}", node.path.display()),
            "add your user to the groups that own it (usually: sudo usermod -aG render,video $USER), then log in again",
        )),
        NodeAccess::Missing => Some(broken(
            format!("the kernel knows a GPU, but there is no {}", node.path.display()),
            "in a container, pass the device in (docker: --device /dev/dri)",
        )),
    };
    examination.nodes.iter().filter_map(finding).collect()
}

fn drivers(examination: &Examination) -> Vec<Finding> {
    let finding = |driver: &super::Driver| Some(worse(driver.fault()?, driver.mend()));
    examination.drivers.iter().filter_map(finding).collect()
}

fn devices(examination: &Examination) -> Vec<Finding> {
    let real = |device: &&refrain_vulkan::DeviceInfo| device.kind != DeviceKind::Software;
    let mut findings = Vec::new();
    for device in examination
        .devices
        .iter()
        .filter(real)
        .filter(|device| !device.usable())
    {
        findings.push(broken(
            format!("{} cannot be used; it lacks {}", device.name, device.missing.join(", ")),
            format!("update its driver (now {} {})", device.driver_name, device.driver_info),
        ));
    }
    let mut silent: Vec<_> = examination.adapters.iter().collect();
    silent.retain(|adapter| {
        !examination
            .devices
            .iter()
            .filter(real)
            .any(|d| d.vendor_id == adapter.vendor)
    });
    silent.dedup();
    for adapter in silent {
        if let Some((vendor, mend)) = adapter.vendor() {
            let id = format!("{:04x}:{:04x}", adapter.vendor, adapter.device);
            findings.push(broken(
                format!("there is a graphics adapter of {vendor} ({id}), but no Vulkan driver offers it"),
                mend,
            ));
        }
    }
    findings
}

fn choice(examination: &Examination) -> Vec<Finding> {
    let failed = |error: &dyn ToString| {
        let mend = "choose a device that `refrain devices` lists, with --device or REFRAIN_DEVICE";
        vec![broken(error.to_string(), mend)]
    };
    match (&examination.decision, &examination.opened) {
        (Err(Error::NoLoader { .. }), _) if examination.loader.is_err() => Vec::new(),
        (Err(error), _) => failed(error),
        (Ok(_), Some(Err(error))) => vec![broken(
            format!("the chosen device fails: {error}"),
            "update its driver, or choose another device with --device",
        )],
        _ => Vec::new(),
    }
}

fn kernels(examination: &Examination) -> Vec<Finding> {
    let Some(Ok(opened)) = &examination.opened else {
        return Vec::new();
    };
    let finding = |verdict: &FamilyVerdict| {
        let fault = verdict.fault.as_ref()?;
        Some(broken(
            format!("the kernels for {} compute wrong results here: {fault}", verdict.family),
            "update the driver; if that does not help, report it with the output of `refrain doctor --json`, and \
             see whether --disable of a feature helps",
        ))
    };
    opened.verdicts.iter().filter_map(finding).collect()
}

fn memory(examination: &Examination) -> Vec<Finding> {
    let Some(Ok(opened)) = &examination.opened else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = opened
        .speeds
        .iter()
        .filter_map(|(class, speed)| {
            let error = speed.as_ref().err()?;
            Some(broken(
                format!("{class} memory cannot be read: {error}"),
                "close programs that use the device's memory, or update the driver",
            ))
        })
        .collect();
    let local = opened.heaps.iter().enumerate().filter(|(_, heap)| heap.device_local);
    for (index, heap) in local.filter(|(_, heap)| heap.size > 1 << 30 && heap.free() < heap.size / 2) {
        let free = human_bytes(heap.free());
        findings.push(worse(
            format!("only {free} of {} are free", heap.describe(index)),
            "other programs use the device's memory: close them to run larger models",
        ));
    }
    findings
}

fn caches(examination: &Examination) -> Vec<Finding> {
    let finding = |cache: &super::CacheFolder| {
        let fault = cache.fault.as_ref()?;
        let place = cache
            .path
            .as_ref()
            .map_or(String::new(), |path| format!(" in {}", path.display()));
        Some(worse(
            format!(
                "{} cannot be kept{place} ({fault}): every start makes them anew",
                cache.what
            ),
            "make the folder writable, or name another with XDG_CACHE_HOME",
        ))
    };
    examination.caches.iter().filter_map(finding).collect()
}

fn model(examination: &Examination) -> Vec<Finding> {
    let Some(placed) = &examination.model else {
        return Vec::new();
    };
    let needed = placed.fit.bytes(placed.context);
    let Some(free) = placed.fit.offer.free.filter(|free| needed > *free) else {
        return Vec::new();
    };
    vec![broken(
        format!(
            "{} does not fit: with a context of {} tokens it needs {}, and {} are free: {} are missing",
            placed.name,
            placed.context,
            human_bytes(needed),
            human_bytes(free),
            human_bytes(needed - free),
        ),
        "take a more strongly quantised or smaller model, a shorter context (--ctx) or another device (--device)",
    )]
}

fn disk(examination: &Examination) -> Vec<Finding> {
    let download = examination.model.as_ref().and_then(|placed| placed.download.as_ref());
    let full = download.filter(|download| download.free_space.is_some_and(|free| free < download.bytes));
    let finding = worse(
        "the disk of the cache has too little room for the download",
        "make room (refrain list, refrain rm), or set HF_HUB_CACHE to a directory on another disk",
    );
    full.map(|_| finding).into_iter().collect()
}

/// Whether Vulkan is used at all, for reports.
pub(super) fn on_cpu(examination: &Examination) -> bool {
    examination
        .decision
        .as_ref()
        .is_ok_and(|decision| decision.target == DeviceTarget::Cpu)
}

#[cfg(test)]
mod tests {
    use refrain::Device;
    use refrain_engine::fit::{Fit, Needs, Offer};
    use refrain_vulkan::{DeviceInfo, Heap, LoaderVersion};

    use super::*;
    use crate::commands::doctor::caches::CacheFolder;
    use crate::commands::doctor::features::missed;
    use crate::commands::doctor::system::{Adapter, DeviceNode};
    use crate::commands::doctor::{ModelFit, OpenedDevice};
    use crate::device::Decision;
    use crate::drivers::Driver;
    use crate::hub::MissingFiles;

    /// A machine on which a made-up card works.
    fn sound() -> Examination {
        let info = DeviceInfo::made_up("card");
        let device = Device::vulkan(refrain_vulkan::Device::null(info.clone()));
        let decision = Decision {
            target: DeviceTarget::Vulkan(0),
            reason: String::new(),
            notable: false,
        };
        let version = LoaderVersion {
            major: 1,
            minor: 3,
            patch: 0,
        };
        Examination {
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
                offer: Offer {
                    free: Some(8 << 30),
                    bandwidth: 1e9,
                    step_seconds: 0.0,
                },
                verdicts: Vec::new(),
            })),
            model: None,
        }
    }

    fn opened(examination: &mut Examination) -> &mut OpenedDevice {
        examination.opened.as_mut().unwrap().as_mut().unwrap()
    }

    /// The only finding.
    #[track_caller]
    fn only(examination: &Examination) -> Finding {
        let findings = all(examination);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.into_iter().next().unwrap()
    }

    #[test]
    fn nothing_is_found_where_all_is_well() {
        assert_eq!(all(&sound()), []);
        assert_eq!(missed(&sound()), []);
    }

    #[test]
    fn a_device_file_that_may_not_be_opened_is_mended_by_a_group() {
        let mut examination = sound();
        let path = "/dev/dri/renderD128".into();
        let access = NodeAccess::Denied;
        examination.nodes = vec![DeviceNode { path, access }];
        let finding = only(&examination);
        assert!(finding.broken && finding.what.contains("renderD128") && finding.mend.contains("-aG render"));
        examination.nodes[0].access = NodeAccess::Missing;
        assert!(only(&examination).mend.contains("--device /dev/dri"));
    }

    #[test]
    fn an_adapter_without_a_driver_is_named_with_what_to_install() {
        let mut examination = sound();
        let (vendor, device) = (0x10de, 0x2335);
        examination.adapters = vec![Adapter { vendor, device }; 8];
        let finding = only(&examination);
        assert!(finding.what.contains("NVIDIA (10de:2335)"), "{finding:?}");
        assert!(finding.mend.contains("NVIDIA_DRIVER_CAPABILITIES"));
        examination.devices[0].vendor_id = vendor;
        assert_eq!(all(&examination), []);
    }

    #[test]
    fn without_a_loader_only_a_machine_with_a_gpu_is_broken() {
        let mut examination = sound();
        let reason = "not found".to_owned();
        examination.loader = Err(Error::NoLoader { reason });
        assert!(!only(&examination).broken);
        let (vendor, device) = (0x1234, 1);
        examination.adapters = vec![Adapter { vendor, device }];
        assert!(!only(&examination).broken, "no vendor of GPUs");
        examination.devices[0].vendor_id = 0x1002;
        examination.adapters[0].vendor = 0x1002;
        assert!(only(&examination).broken);
    }

    #[test]
    fn wrong_kernels_are_broken_and_idle_drivers_are_not() {
        let mut examination = sound();
        opened(&mut examination).verdicts = vec![FamilyVerdict {
            family: "softmax",
            compared: 3,
            worst: f32::INFINITY,
            fault: Some("f16: element 7 is 1.0 instead of 2.0".to_owned()),
        }];
        let finding = only(&examination);
        assert!(finding.broken && finding.what.contains("softmax") && finding.what.contains("element 7"));
        let driver = |devices| Driver {
            manifest: "a.json".into(),
            devices,
        };
        examination.drivers = vec![driver(Ok(Vec::new())), driver(Err("no such file".to_owned()))];
        let findings = all(&examination);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].broken && !findings[1].broken && findings[1].what.contains("no such file"));
    }

    #[test]
    fn a_model_that_does_not_fit_is_told_with_what_is_missing() {
        let mut examination = sound();
        let offer = opened(&mut examination).offer;
        let needs = Needs {
            weights: 7 << 30,
            weights_per_token: 7 << 30,
            kv_per_position: 1 << 20,
            layers: 1,
            max_context: 8192,
        };
        examination.model = Some(ModelFit {
            name: "big".to_owned(),
            download: None,
            fit: Fit { needs, offer },
            context: 2048,
        });
        let finding = only(&examination);
        assert!(
            finding.broken
                && finding
                    .what
                    .contains("needs 9.0 GiB, and 8.0 GiB are free: 1.0 GiB are missing")
        );
        let placed = examination.model.as_mut().unwrap();
        placed.context = 1024;
        let download = |free_space| MissingFiles {
            bytes: 7 << 30,
            from: "https://huggingface.co".to_owned(),
            free_space,
        };
        placed.download = Some(download(Some(6 << 30)));
        assert!(only(&examination).mend.contains("HF_HUB_CACHE"));
        for free_space in [None, Some(7 << 30)] {
            examination.model.as_mut().unwrap().download = Some(download(free_space));
            assert_eq!(all(&examination), []);
        }
    }

    #[test]
    fn memory_in_use_and_caches_that_cannot_be_kept_only_cost() {
        let mut examination = sound();
        opened(&mut examination).heaps = vec![Heap {
            size: 8 << 30,
            device_local: true,
            budget: Some(8 << 30),
            used: 6 << 30,
        }];
        assert!(!only(&examination).broken);
        let fault = Some("read-only".to_owned());
        examination.caches = vec![CacheFolder {
            what: "compiled shaders",
            path: None,
            files: 0,
            bytes: 0,
            fault,
        }];
        assert!(all(&examination).iter().all(|finding| !finding.broken));
        assert_eq!(all(&examination).len(), 2);
    }
}
