//! GPUs as the operating system sees them (Linux: `/sys` and `/dev`), and whether this user may access them.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A GPU on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Adapter {
    /// PCI vendor id.
    pub vendor: u32,
    /// PCI device id.
    pub device: u32,
}

/// A device file through which drivers access a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceNode {
    pub path: PathBuf,
    pub access: NodeAccess,
}

/// Whether this user may open a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeAccess {
    Granted,
    Denied,
    /// The kernel knows the device, but the file is missing, as is common in containers.
    Missing,
}

impl Adapter {
    /// The vendor's name, and how to install its Vulkan driver; `None` for vendors without compute GPUs.
    pub fn vendor(&self) -> Option<(&'static str, &'static str)> {
        let mesa = "install Mesa's Vulkan drivers (Debian and Ubuntu: apt install mesa-vulkan-drivers)";
        match self.vendor {
            0x1002 => Some(("AMD", mesa)),
            0x8086 => Some(("Intel", mesa)),
            0x10de => Some((
                "NVIDIA",
                "install the NVIDIA driver with Vulkan support (Debian: apt install nvidia-driver \
                 nvidia-vulkan-icd), or Mesa's; start containers with NVIDIA_DRIVER_CAPABILITIES=all, and install \
                 libegl1 in them, which the driver loads",
            )),
            _ => None,
        }
    }
}

/// The GPUs below `root`, which is `/` outside tests.
pub(super) fn adapters(root: &Path) -> Vec<Adapter> {
    let hex = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let entries = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten();
    let adapter = |folder: PathBuf| {
        // Class 0x03 of the PCI specification: display controllers.
        let class = hex(folder.join("class"))? >> 16;
        (class == 3).then_some(Adapter {
            vendor: hex(folder.join("vendor"))?,
            device: hex(folder.join("device"))?,
        })
    };
    entries.filter_map(|entry| adapter(entry.ok()?.path())).collect()
}

/// The render nodes and NVIDIA's device files below `root`, which is `/` outside tests.
pub(super) fn nodes(root: &Path) -> Vec<DeviceNode> {
    let names = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        entries.filter_map(name).collect::<Vec<_>>()
    };
    let render = |name: &String| name.starts_with("renderD");
    let mut paths: Vec<PathBuf> = names("sys/class/drm")
        .into_iter()
        .chain(names("dev/dri"))
        .filter(render)
        .map(|name| root.join("dev/dri").join(name))
        .collect();
    let nvidia = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| rest == "ctl" || rest.parse::<u32>().is_ok())
    };
    paths.extend(
        names("dev")
            .into_iter()
            .filter(nvidia)
            .map(|name| root.join("dev").join(name)),
    );
    paths.sort();
    paths.dedup();
    let node = |path: PathBuf| DeviceNode {
        access: access(&path),
        path,
    };
    paths.into_iter().map(node).collect()
}

fn access(path: &Path) -> NodeAccess {
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => NodeAccess::Denied,
        Err(error) if error.kind() == ErrorKind::NotFound => NodeAccess::Missing,
        // Other errors are left for the driver to report.
        _ => NodeAccess::Granted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn finds_gpus_on_the_pci_bus() {
        let root = tempfile::tempdir().unwrap();
        for (name, class, vendor) in [
            ("0000:03:00.0", "0x030000", "0x1002"),
            ("0000:00:02.0", "0x020000", "0x8086"),
        ] {
            let folder = format!("sys/bus/pci/devices/{name}");
            write(root.path(), &format!("{folder}/class"), &format!("{class}\n"));
            write(root.path(), &format!("{folder}/vendor"), &format!("{vendor}\n"));
            write(root.path(), &format!("{folder}/device"), "0x744c\n");
        }
        let found = adapters(root.path());
        assert_eq!(
            found,
            [Adapter {
                vendor: 0x1002,
                device: 0x744c
            }]
        );
        assert!(found[0].vendor().unwrap().1.contains("mesa-vulkan-drivers"));
        assert!(adapters(&root.path().join("nowhere")).is_empty());
    }

    #[test]
    fn reports_device_files_missing_in_containers() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/class/drm/renderD128/dev", "226:128");
        write(root.path(), "sys/class/drm/card0/dev", "226:0");
        write(root.path(), "dev/dri/renderD129", "");
        write(root.path(), "dev/nvidia0", "");
        write(root.path(), "dev/nvidia-uvm", "");
        let found: Vec<_> = nodes(root.path())
            .into_iter()
            .map(|node| (node.path.file_name().unwrap().to_owned(), node.access))
            .collect();
        let expected = [
            ("renderD128", NodeAccess::Missing),
            ("renderD129", NodeAccess::Granted),
            ("nvidia0", NodeAccess::Granted),
        ];
        assert_eq!(found, expected.map(|(name, access)| (name.into(), access)));
    }
}
