//! Which device to use: ranking, folding of duplicates, and the user's wish.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::str::FromStr;

use crate::error::{Error, human_bytes};
use crate::info::{DeviceInfo, DeviceKind};

/// The user's wish. (`cpu`, which is no Vulkan device, is the caller's matter.)
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// The best usable device.
    #[default]
    Auto,
    /// The device at this place of the list.
    Index(usize),
    /// The best usable device whose name contains this, in any case.
    Name(String),
}

impl FromStr for Choice {
    type Err = Infallible;

    /// `auto` or nothing, a number, or part of a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let text = text.trim();
        Ok(match text.parse() {
            Ok(index) => Self::Index(index),
            Err(_) if text.is_empty() || text.eq_ignore_ascii_case("auto") => Self::Auto,
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

/// A device's place in the ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// Index into the list that was ranked.
    pub index: usize,
    /// Whether the runtime can work with it.
    pub usable: bool,
    /// Set if this is the same GPU as the device at that index, under another driver.
    pub folded_into: Option<usize>,
    /// Why it stands where it stands, for people.
    pub reason: String,
}

/// Ranks devices, best first: usable before unusable, each GPU once before its duplicates, then
/// discrete, integrated, virtual, software, then by memory.
pub fn rank(devices: &[DeviceInfo]) -> Vec<Ranked> {
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by_key(|&index| sort_key(&devices[index]));
    let mut ranked: Vec<Ranked> = Vec::new();
    for index in order {
        let same = |other: &&Ranked| other.folded_into.is_none() && same_gpu(devices, other.index, index);
        let folded_into = ranked.iter().find(same).map(|other| other.index);
        let device = &devices[index];
        let reason = match folded_into {
            _ if !device.usable() => format!("cannot be used: {}", device.missing.join(", ")),
            Some(other) => {
                format!("the same GPU as device {other} under driver {}", device.driver_name)
            }
            None => {
                format!(
                    "{} with {} of its memory",
                    device.kind,
                    human_bytes(device.device_memory())
                )
            }
        };
        ranked.push(Ranked {
            index,
            usable: device.usable(),
            folded_into,
            reason,
        });
    }
    ranked.sort_by_key(|device| (!device.usable, device.folded_into.is_some()));
    if let Some(first) = ranked.first_mut().filter(|first| first.usable) {
        first.reason.insert_str(0, "first choice: ");
    }
    ranked
}

/// Smaller is better. More features, then the newer Vulkan version, decide between drivers.
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

/// Whether two entries are one GPU. The place on the PCI bus decides where both drivers tell it,
/// else the UUID; else, if two drivers each show exactly one device of that name and id, they
/// show the same one. Two equal cards under one driver are two.
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
    let alone = |one: &DeviceInfo| {
        let twin = |other: &&DeviceInfo| other.driver_name == one.driver_name && identity(other) == identity(one);
        devices.iter().filter(twin).count() == 1
    };
    identity(a) == identity(b) && a.driver_name != b.driver_name && alone(a) && alone(b)
}

/// The index of the device that `choice` means.
///
/// # Errors
/// No device at all, none usable, none of that name or number, or one that cannot be used.
pub fn choose(devices: &[DeviceInfo], choice: &Choice) -> Result<usize, Error> {
    if devices.is_empty() {
        return Err(Error::NoDevice);
    }
    let ranked = rank(devices);
    let matching: Vec<&Ranked> = match choice {
        Choice::Auto => ranked.iter().collect(),
        Choice::Index(index) => ranked.iter().filter(|device| device.index == *index).collect(),
        Choice::Name(name) => {
            let name = name.to_lowercase();
            let fits = |device: &&Ranked| devices[device.index].name.to_lowercase().contains(&name);
            ranked.iter().filter(fits).collect()
        }
    };
    if let Some(device) = matching.iter().find(|device| device.usable) {
        return Ok(device.index);
    }
    let describe = |device: &&Ranked| format!("{} {}", devices[device.index].name, device.reason);
    match (choice, matching.first()) {
        (Choice::Auto, _) => Err(Error::NoUsableDevice {
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
            asked: match choice {
                Choice::Index(index) => index.to_string(),
                Choice::Name(name) => name.clone(),
                Choice::Auto => "auto".to_owned(),
            },
            known: list(devices),
        }),
    }
}

fn list(devices: &[DeviceInfo]) -> String {
    let name = |(index, device): (usize, &DeviceInfo)| format!("{index} ({})", device.name);
    devices.iter().enumerate().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, kind: DeviceKind, gib: u64) -> DeviceInfo {
        let mut info = DeviceInfo::made_up(name);
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
    fn discrete_comes_before_integrated_before_virtual_before_software() {
        let devices = [
            device("llvmpipe", DeviceKind::Software, 64),
            device("virtio", DeviceKind::Virtual, 32),
            device("iris", DeviceKind::Integrated, 48),
            device("small card", DeviceKind::Discrete, 4),
            device("large card", DeviceKind::Discrete, 24),
        ];
        assert_eq!(order(&devices), [4, 3, 2, 1, 0]);
        assert_eq!(choose(&devices, &Choice::Auto).unwrap(), 4);
        assert!(rank(&devices)[0].reason.starts_with("first choice: discrete with 24"));
    }

    #[test]
    fn one_gpu_under_two_drivers_is_folded() {
        let mut radv = device("RADV NAVI31", DeviceKind::Discrete, 24);
        let mut amdvlk = device("AMD Radeon RX 7900 XTX", DeviceKind::Discrete, 24);
        (radv.driver_name, amdvlk.driver_name) = ("radv".into(), "amdvlk".into());
        (radv.pci, amdvlk.pci) = (Some([0, 3, 0, 0]), Some([0, 3, 0, 0]));
        let ranked = rank(&[radv.clone(), amdvlk.clone()]);
        assert_eq!((ranked[0].folded_into, ranked[1].folded_into), (None, Some(0)));
        // Without the bus: by vendor and device id, if each driver shows but one.
        (radv.pci, amdvlk.pci) = (None, None);
        amdvlk.device_id = radv.device_id;
        let ranked = rank(&[radv.clone(), amdvlk.clone()]);
        assert_eq!(ranked[1].folded_into, Some(0));
        // A duplicate that cannot be used never hides one that can.
        radv.missing.push("Vulkan 1.3".into());
        let ranked = rank(&[radv, amdvlk]);
        assert_eq!((ranked[0].index, ranked[0].folded_into), (1, None));
        assert!(!ranked[1].usable);
    }

    #[test]
    fn two_equal_cards_are_two() {
        let mut first = device("H200", DeviceKind::Discrete, 139);
        let mut second = first.clone();
        second.uuid[15] = 1;
        assert!(
            rank(&[first.clone(), second.clone()])
                .iter()
                .all(|d| d.folded_into.is_none())
        );
        (first.pci, second.pci) = (Some([0, 1, 0, 0]), Some([0, 2, 0, 0]));
        second.uuid = first.uuid;
        assert!(rank(&[first, second]).iter().all(|d| d.folded_into.is_none()));
    }

    #[test]
    fn an_unusable_device_is_listed_last_and_refused_with_the_reason() {
        let mut old = device("old card", DeviceKind::Discrete, 24);
        old.missing = vec!["Vulkan 1.3 (it has 1.1)".into()];
        let devices = [old.clone(), device("llvmpipe", DeviceKind::Software, 8)];
        assert_eq!(order(&devices), [1, 0]);
        assert_eq!(choose(&devices, &Choice::Auto).unwrap(), 1);
        let error = choose(&devices, &Choice::Name("OLD".into())).unwrap_err();
        assert!(error.to_string().contains("it has 1.1"), "{error}");
        let error = choose(&[old], &Choice::Auto).unwrap_err();
        assert!(matches!(error, Error::NoUsableDevice { .. }), "{error}");
    }

    #[test]
    fn a_wish_is_a_number_or_part_of_a_name() {
        let devices = [
            device("NVIDIA H200", DeviceKind::Discrete, 139),
            device("llvmpipe (LLVM 15)", DeviceKind::Software, 8),
        ];
        let wish = |text: &str| choose(&devices, &text.parse().unwrap());
        assert_eq!(wish("1").unwrap(), 1);
        assert_eq!(wish("LLVM").unwrap(), 1);
        assert_eq!(wish("auto").unwrap(), 0);
        for unknown in ["2", "radeon"] {
            let error = wish(unknown).unwrap_err().to_string();
            assert!(error.contains("0 (NVIDIA H200)") && error.contains(unknown), "{error}");
        }
        assert!(matches!(choose(&[], &Choice::Auto), Err(Error::NoDevice)));
    }
}
