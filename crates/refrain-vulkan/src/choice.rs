//! Device selection: ranking, detection of duplicates, and the device that the user requested.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::str::FromStr;

use crate::error::{Error, human_bytes};
use crate::info::{DeviceInfo, DeviceKind};

/// Device requested by the user. The caller handles `cpu`, which is not a Vulkan device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The best usable device.
    #[default]
    Auto,
    /// The device at this index of the list.
    Index(usize),
    /// The best usable device whose name contains this string, ignoring case.
    Name(String),
}

impl FromStr for DeviceChoice {
    type Err = Infallible;

    /// Parses `auto` or an empty string, an index, or part of a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let text = text.trim();
        Ok(match text.parse() {
            Ok(index) => Self::Index(index),
            Err(_) if text.is_empty() || text.eq_ignore_ascii_case("auto") => Self::Auto,
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

/// Rank of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedDevice {
    /// Index into the list that was ranked.
    pub index: usize,
    /// Whether the device meets the requirements of the runtime.
    pub usable: bool,
    /// Index of the device that is the same GPU under another driver, if any.
    pub duplicate_of: Option<usize>,
    /// Why the device has this rank, as text for the user.
    pub reason: String,
}

/// Ranks devices, best first: usable before unusable, each GPU before its duplicates, then discrete, integrated,
/// virtual, software, then by memory size.
pub fn rank(devices: &[DeviceInfo]) -> Vec<RankedDevice> {
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by_key(|&index| sort_key(&devices[index]));
    let mut ranked: Vec<RankedDevice> = Vec::new();
    for index in order {
        let same = |other: &&RankedDevice| other.duplicate_of.is_none() && same_gpu(devices, other.index, index);
        let duplicate_of = ranked.iter().find(same).map(|other| other.index);
        let device = &devices[index];
        let reason = match duplicate_of {
            _ if !device.usable() => format!("cannot be used: it lacks {}", device.missing.join(", ")),
            Some(other) => {
                format!("the same GPU as device {other} under driver {}", device.driver_name)
            }
            None => {
                format!(
                    "{} with {} of device memory",
                    device.kind,
                    human_bytes(device.device_memory())
                )
            }
        };
        ranked.push(RankedDevice {
            index,
            usable: device.usable(),
            duplicate_of,
            reason,
        });
    }
    ranked.sort_by_key(|device| (!device.usable, device.duplicate_of.is_some()));
    if let Some(first) = ranked.first_mut().filter(|first| first.usable) {
        first.reason.insert_str(0, "first choice: ");
    }
    ranked
}

/// Sorts the best device first. Between two drivers, the one with more features wins, then the one with the newer
/// Vulkan version.
type SortKey = (bool, u8, Reverse<u64>, Reverse<usize>, Reverse<(u32, u32)>);

fn sort_key(device: &DeviceInfo) -> SortKey {
    let kind = match device.kind {
        DeviceKind::Discrete => 0,
        DeviceKind::Integrated => 1,
        DeviceKind::Virtual => 2,
        DeviceKind::Other => 3,
        DeviceKind::Software => 4,
    };
    let memory = Reverse(device.device_memory());
    let features = Reverse(device.features.len());
    (!device.usable(), kind, memory, features, Reverse(device.api_version))
}

/// Whether two entries are the same GPU. If both drivers report the PCI address, it decides. Otherwise equal UUIDs
/// decide. Otherwise entries of two drivers match if each driver lists exactly one device of that vendor and device id.
/// Two equal cards under one driver stay two devices.
fn same_gpu(devices: &[DeviceInfo], left: usize, right: usize) -> bool {
    let (a, b) = (&devices[left], &devices[right]);
    let software = |device: &DeviceInfo| device.kind == DeviceKind::Software;
    if software(a) != software(b) {
        return false;
    }
    if let (Some(a), Some(b)) = (a.pci, b.pci) {
        return a == b;
    }
    if a.uuid == b.uuid && a.uuid != [0; 16] {
        return true;
    }
    let identity = |device: &DeviceInfo| (device.vendor_id, device.device_id);
    let is_unique = |one: &DeviceInfo| {
        let twin = |other: &&DeviceInfo| other.driver_name == one.driver_name && identity(other) == identity(one);
        devices.iter().filter(twin).count() == 1
    };
    identity(a) == identity(b) && a.driver_name != b.driver_name && is_unique(a) && is_unique(b)
}

/// Returns the index of the device that `choice` selects.
///
/// # Errors
/// Fails if there is no device, none is usable, none matches, or the matching one is unusable.
pub fn choose(devices: &[DeviceInfo], choice: &DeviceChoice) -> Result<usize, Error> {
    if devices.is_empty() {
        return Err(Error::NoDevice);
    }
    let ranked = rank(devices);
    let matching: Vec<&RankedDevice> = match choice {
        DeviceChoice::Auto => ranked.iter().collect(),
        DeviceChoice::Index(index) => ranked.iter().filter(|device| device.index == *index).collect(),
        DeviceChoice::Name(name) => {
            let name = name.to_lowercase();
            let fits = |device: &&RankedDevice| devices[device.index].name.to_lowercase().contains(&name);
            ranked.iter().filter(fits).collect()
        }
    };
    if let Some(device) = matching.iter().find(|device| device.usable) {
        return Ok(device.index);
    }
    let describe = |device: &&RankedDevice| format!("{} {}", devices[device.index].name, device.reason);
    match (choice, matching.first()) {
        (DeviceChoice::Auto, _) => Err(Error::NoUsableDevice {
            reasons: ranked
                .iter()
                .map(|device| describe(&device))
                .collect::<Vec<_>>()
                .join("; "),
        }),
        (_, Some(device)) => Err(Error::UnusableDevice {
            name: devices[device.index].name.clone(),
            reason: devices[device.index].missing.join(", "),
        }),
        (choice, None) => Err(Error::UnknownDevice {
            requested: match choice {
                DeviceChoice::Index(index) => index.to_string(),
                DeviceChoice::Name(name) => name.clone(),
                DeviceChoice::Auto => "auto".to_owned(),
            },
            known: device_names(devices),
        }),
    }
}

fn device_names(devices: &[DeviceInfo]) -> String {
    let name = |(index, device): (usize, &DeviceInfo)| format!("{index} ({})", device.name);
    devices.iter().enumerate().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, kind: DeviceKind, gib: u64) -> DeviceInfo {
        let mut info = DeviceInfo::mock(name);
        info.kind = kind;
        info.heaps[0].size = gib << 30;
        info.uuid = std::array::from_fn(|i| name.as_bytes().get(i).copied().unwrap_or(0));
        info.device_id = info.uuid.iter().map(|byte| u32::from(*byte)).sum();
        info
    }

    fn order(devices: &[DeviceInfo]) -> Vec<usize> {
        rank(devices).into_iter().map(|device| device.index).collect()
    }

    #[test]
    fn ranks_by_device_kind_then_memory() {
        let devices = [
            device("llvmpipe", DeviceKind::Software, 64),
            device("virtio", DeviceKind::Virtual, 32),
            device("iris", DeviceKind::Integrated, 48),
            device("small card", DeviceKind::Discrete, 4),
            device("large card", DeviceKind::Discrete, 24),
        ];
        assert_eq!(order(&devices), [4, 3, 2, 1, 0]);
        assert_eq!(choose(&devices, &DeviceChoice::Auto).unwrap(), 4);
        assert!(rank(&devices)[0].reason.starts_with("first choice: discrete with 24"));
    }

    #[test]
    fn detects_one_gpu_under_two_drivers() {
        let mut radv = device("RADV NAVI31", DeviceKind::Discrete, 24);
        let mut amdvlk = device("AMD Radeon RX 7900 XTX", DeviceKind::Discrete, 24);
        (radv.driver_name, amdvlk.driver_name) = ("radv".into(), "amdvlk".into());
        (radv.pci, amdvlk.pci) = (Some([0, 3, 0, 0]), Some([0, 3, 0, 0]));
        let ranked = rank(&[radv.clone(), amdvlk.clone()]);
        assert_eq!((ranked[0].duplicate_of, ranked[1].duplicate_of), (None, Some(0)));
        // Without PCI addresses, vendor and device id decide if each driver lists one device.
        (radv.pci, amdvlk.pci) = (None, None);
        amdvlk.device_id = radv.device_id;
        let ranked = rank(&[radv.clone(), amdvlk.clone()]);
        assert_eq!(ranked[1].duplicate_of, Some(0));
        // An unusable duplicate never hides a usable one.
        radv.missing.push("Vulkan 1.3".into());
        let ranked = rank(&[radv, amdvlk]);
        assert_eq!((ranked[0].index, ranked[0].duplicate_of), (1, None));
        assert!(!ranked[1].usable);
    }

    #[test]
    fn equal_cards_are_not_duplicates() {
        let mut first = device("H200", DeviceKind::Discrete, 139);
        let mut second = first.clone();
        second.uuid[15] = 1;
        assert!(
            rank(&[first.clone(), second.clone()])
                .iter()
                .all(|d| d.duplicate_of.is_none())
        );
        (first.pci, second.pci) = (Some([0, 1, 0, 0]), Some([0, 2, 0, 0]));
        second.uuid = first.uuid;
        assert!(rank(&[first, second]).iter().all(|d| d.duplicate_of.is_none()));
    }

    #[test]
    fn unusable_devices_rank_last_and_are_rejected_with_the_reason() {
        let mut old = device("old card", DeviceKind::Discrete, 24);
        old.missing = vec!["Vulkan 1.3 (it has 1.1)".into()];
        let devices = [old.clone(), device("llvmpipe", DeviceKind::Software, 8)];
        assert_eq!(order(&devices), [1, 0]);
        assert_eq!(choose(&devices, &DeviceChoice::Auto).unwrap(), 1);
        let error = choose(&devices, &DeviceChoice::Name("OLD".into())).unwrap_err();
        assert!(error.to_string().contains("it has 1.1"), "{error}");
        let error = choose(&[old], &DeviceChoice::Auto).unwrap_err();
        assert!(matches!(error, Error::NoUsableDevice { .. }), "{error}");
    }

    #[test]
    fn selects_a_device_by_index_or_part_of_its_name() {
        let devices = [
            device("NVIDIA H200", DeviceKind::Discrete, 139),
            device("llvmpipe (LLVM 15)", DeviceKind::Software, 8),
        ];
        let select = |text: &str| choose(&devices, &text.parse().unwrap());
        assert_eq!(select("1").unwrap(), 1);
        assert_eq!(select("LLVM").unwrap(), 1);
        assert_eq!(select("auto").unwrap(), 0);
        for unknown in ["2", "radeon"] {
            let error = select(unknown).unwrap_err().to_string();
            assert!(error.contains("0 (NVIDIA H200)") && error.contains(unknown), "{error}");
        }
        assert!(matches!(choose(&[], &DeviceChoice::Auto), Err(Error::NoDevice)));
    }
}
