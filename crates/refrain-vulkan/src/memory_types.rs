//! Selection of the memory types and heaps that back each memory class.

use crate::class::MemoryClass;
use crate::info::{DeviceInfo, DeviceKind, MemoryType};

impl DeviceInfo {
    /// Returns the heaps that back a class, as indices, best first.
    pub fn heaps_for(&self, class: MemoryClass) -> Vec<usize> {
        let mut heaps = Vec::new();
        for memory_type in memory_types(self, class) {
            let heap = self.memory_types[memory_type].heap;
            if !heaps.contains(&heap) {
                heaps.push(heap);
            }
        }
        heaps
    }

    /// Returns the bytes of memory that can hold models: device memory of a discrete card, and all shared memory of an
    /// integrated GPU.
    pub fn device_memory(&self) -> u64 {
        let heaps = self.heaps_for(MemoryClass::Weight);
        heaps
            .into_iter()
            .filter_map(|heap| self.heaps.get(heap))
            .map(|heap| heap.size)
            .sum()
    }
}

/// Returns the memory types that back `class`, best first, as indices into [`DeviceInfo::memory_types`]. Weights, state
/// and scratch of a discrete GPU never use host memory: an allocation that does not fit fails instead of being silently
/// slow.
pub fn memory_types(info: &DeviceInfo, class: MemoryClass) -> Vec<usize> {
    let mut found: Vec<usize> = (0..info.memory_types.len())
        .filter(|&index| is_suitable(info, &info.memory_types[index], class))
        .collect();
    // The sort is stable, so ties keep the order of the driver (fastest first).
    found.sort_by_key(|&index| penalty(info, &info.memory_types[index], class));
    found
}

fn is_suitable(info: &DeviceInfo, kind: &MemoryType, class: MemoryClass) -> bool {
    if !kind.usable {
        return false;
    }
    if class.mapped() {
        return kind.host_visible && kind.host_coherent;
    }
    // An integrated GPU uses host memory, whatever its driver calls it.
    kind.device_local || matches!(info.kind, DeviceKind::Integrated | DeviceKind::Software)
}

fn penalty(info: &DeviceInfo, kind: &MemoryType, class: MemoryClass) -> (u8, u8, u64) {
    let cost = |wanted: bool, actual: bool| u8::from(wanted != actual);
    let heap_size = info.heaps.get(kind.heap).map_or(0, |heap| heap.size);
    match class {
        MemoryClass::Control => (cost(true, kind.device_local), cost(true, kind.host_cached), 0),
        // Do not use up the small host-visible window (BAR) of a discrete card.
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
    fn discrete_cards_never_use_host_memory_for_weights() {
        let info = DeviceInfo::mock("card");
        for class in [MemoryClass::Weight, MemoryClass::State, MemoryClass::Scratch] {
            let types = flags(&info, class);
            assert!(!types.is_empty() && types.iter().all(|kind| kind.device_local));
            assert!(
                !types[0].host_visible,
                "the host-visible window is only a second choice"
            );
        }
    }

    #[test]
    fn control_prefers_the_window_and_staging_prefers_cached_host_memory() {
        let info = DeviceInfo::mock("card");
        let control = flags(&info, MemoryClass::Control);
        assert!(control[0].device_local && control[0].host_visible);
        assert!(control.len() > 1, "host memory is the fallback without a window");
        for class in [MemoryClass::Report, MemoryClass::Staging] {
            let types = flags(&info, class);
            assert!(types[0].host_cached && !types[0].device_local);
        }
    }

    #[test]
    fn an_integrated_gpu_uses_its_unified_heap() {
        let mut info = DeviceInfo::mock("apu");
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
    fn ignores_vendor_specific_memory_types() {
        let mut info = DeviceInfo::mock("apu");
        info.kind = DeviceKind::Integrated;
        // As AMD drivers list them: uncached types among the others.
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
