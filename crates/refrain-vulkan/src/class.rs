//! Classes of memory, and which of a device's memory types serves each.

use std::fmt;

use crate::info::{DeviceInfo, DeviceKind, MemoryType};

/// What a buffer's bytes are for. The class decides where they live and who may touch them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryClass {
    /// Parameters of a model: device-local, uploaded once, then only read by kernels.
    Weight,
    /// What lives from token to token (key–value pages, recurrent state): device-local.
    State,
    /// Temporaries of one evaluation: device-local.
    Scratch,
    /// Small values that the host writes directly: host-visible, and device-local where the device offers
    /// both.
    Control,
    /// A few words that the device tells the host again and again: host-visible and cached. A read across
    /// the bus costs the host microseconds, a write costs the device nothing that it waits for.
    Report,
    /// The way of bytes to and from device-local memory: host-visible and cached.
    Staging,
}

impl MemoryClass {
    /// Every class.
    pub const ALL: [Self; 6] = [
        Self::Weight,
        Self::State,
        Self::Scratch,
        Self::Control,
        Self::Report,
        Self::Staging,
    ];

    /// Whether the host maps memory of this class.
    pub fn mapped(self) -> bool {
        matches!(self, Self::Control | Self::Report | Self::Staging)
    }

    /// Whether what it holds is updated in place.
    pub fn is_state(self) -> bool {
        matches!(self, Self::State | Self::Report)
    }

    /// The class as an index into tables of [`MemoryClass::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for MemoryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weight => "weight",
            Self::State => "state",
            Self::Scratch => "scratch",
            Self::Control => "control",
            Self::Report => "report",
            Self::Staging => "staging",
        })
    }
}

/// The memory types that serve `class`, best first, as indices into
/// [`DeviceInfo::memory_types`]. A GPU's weights, state and scratch never list host memory: what
/// does not fit is refused and not silently slow.
pub fn memory_types(info: &DeviceInfo, class: MemoryClass) -> Vec<usize> {
    let mut found: Vec<usize> = (0..info.memory_types.len())
        .filter(|&index| serves(info, &info.memory_types[index], class))
        .collect();
    // Stable: among equals the driver's own order (fastest first) stands.
    found.sort_by_key(|&index| penalty(info, &info.memory_types[index], class));
    found
}

fn serves(info: &DeviceInfo, kind: &MemoryType, class: MemoryClass) -> bool {
    if !kind.usable {
        return false;
    }
    if class.mapped() {
        return kind.host_visible && kind.host_coherent;
    }
    // An integrated GPU's memory is the host's, whatever its driver calls it.
    kind.device_local || matches!(info.kind, DeviceKind::Integrated | DeviceKind::Software)
}

fn penalty(info: &DeviceInfo, kind: &MemoryType, class: MemoryClass) -> (u8, u8, u64) {
    let cost = |wanted: bool, is: bool| u8::from(wanted != is);
    let heap_size = info.heaps.get(kind.heap).map_or(0, |heap| heap.size);
    match class {
        MemoryClass::Control => (cost(true, kind.device_local), cost(true, kind.host_cached), 0),
        // These must not eat the small window into a discrete card's memory.
        MemoryClass::Report | MemoryClass::Staging => {
            let local_matters = info.kind == DeviceKind::Discrete;
            (
                cost(true, kind.host_cached),
                u8::from(local_matters && kind.device_local),
                0,
            )
        }
        _ => (
            cost(true, kind.device_local),
            cost(false, kind.host_visible),
            u64::MAX - heap_size,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(info: &DeviceInfo, class: MemoryClass) -> Vec<MemoryType> {
        memory_types(info, class)
            .into_iter()
            .map(|index| info.memory_types[index])
            .collect()
    }

    #[test]
    fn a_discrete_card_offers_its_weights_no_host_memory() {
        let info = DeviceInfo::made_up("card");
        for class in [MemoryClass::Weight, MemoryClass::State, MemoryClass::Scratch] {
            let types = flags(&info, class);
            assert!(!types.is_empty() && types.iter().all(|kind| kind.device_local));
            assert!(!types[0].host_visible, "the small window is only a second choice");
        }
    }

    #[test]
    fn control_prefers_the_window_reports_and_staging_the_cached_host_memory() {
        let info = DeviceInfo::made_up("card");
        let control = flags(&info, MemoryClass::Control);
        assert!(control[0].device_local && control[0].host_visible);
        assert!(control.len() > 1, "without a window, host memory serves");
        for class in [MemoryClass::Report, MemoryClass::Staging] {
            let types = flags(&info, class);
            assert!(types[0].host_cached && !types[0].device_local);
        }
    }

    #[test]
    fn an_integrated_gpu_uses_its_unified_heap() {
        let mut info = DeviceInfo::made_up("apu");
        info.kind = DeviceKind::Integrated;
        info.heaps.truncate(1);
        info.memory_types = vec![MemoryType {
            heap: 0,
            usable: true,
            device_local: true,
            host_visible: true,
            host_coherent: true,
            host_cached: true,
        }];
        for class in MemoryClass::ALL {
            assert_eq!(memory_types(&info, class), [0]);
        }
    }

    #[test]
    fn memory_of_a_vendors_own_kind_serves_nothing() {
        let mut info = DeviceInfo::made_up("apu");
        info.kind = DeviceKind::Integrated;
        // As AMD lists them: uncached types among the others.
        let uncached = info
            .memory_types
            .iter()
            .map(|kind| MemoryType { usable: false, ..*kind });
        info.memory_types = uncached.chain(info.memory_types.clone()).collect();
        for class in MemoryClass::ALL {
            let types = memory_types(&info, class);
            assert!(
                !types.is_empty() && types.iter().all(|&index| index >= 4),
                "{class}: {types:?}"
            );
        }
    }
}
