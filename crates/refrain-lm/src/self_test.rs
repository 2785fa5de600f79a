//! Self-test of a device: compares every kernel family that models use with the CPU executor, to find faulty drivers.

mod cases;

pub use cases::FAMILIES;
use refrain::Device;
use refrain::self_test::{self, FamilyTest, FamilyVerdict};

/// Returns the families of array operations and of this crate's operations.
fn families() -> Vec<FamilyTest> {
    [self_test::FAMILIES, FAMILIES].concat()
}

/// Tests every family. Takes at most seconds once kernels are compiled. `progress` is called with the number of
/// finished families and of all families.
pub fn run(device: &Device, progress: &dyn Fn(usize, usize)) -> Vec<FamilyVerdict> {
    self_test::run(device, &families(), progress)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use refrain::{Array, Function};
    use refrain_vulkan::DeviceInfo;

    use super::*;

    fn null() -> Device {
        Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")))
    }

    #[test]
    fn device_without_results_fails_every_family() {
        for verdict in run(&null(), &|_, _| ()) {
            let fault = verdict.fault.unwrap_or_else(|| panic!("{} passed", verdict.family));
            assert!(fault.contains("instead of"), "{}: {fault}", verdict.family);
        }
    }

    #[test]
    fn cpu_reference_passes_every_family() {
        for verdict in run(&Device::cpu(), &|_, _| ()) {
            assert_eq!((verdict.fault, verdict.worst), (None, 0.0), "{}", verdict.family);
        }
    }

    /// Returns the family and variant of a kernel's name.
    fn family(kernel: &str) -> String {
        // Variants' tags follow a plus.
        let mut parts = kernel.split('.').filter_map(|part| part.split('+').next());
        let first = parts.next().unwrap_or_default();
        match (first, parts.next()) {
            ("matmul" | "quantised" | "reduce", Some(variant)) => format!("{first}.{variant}"),
            _ => first.to_owned(),
        }
    }

    #[test]
    fn every_kernel_family_in_the_support_table_is_tested() {
        let table = include_str!("../../../docs/support.md");
        let rows = table.lines().filter(|line| line.starts_with('|'));
        let named = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let named: BTreeSet<String> = named.filter(|name| name.contains('.')).map(family).collect();
        let device = null();
        let mut tested = BTreeSet::new();
        for (_, build) in families() {
            let arrays = build(&device);
            let arrays: Vec<&Array> = arrays.iter().map(|(_, array)| array).collect();
            let function = Function::trace(&arrays).unwrap();
            let calls = function.plan().steps.iter().flat_map(|step| &step.calls);
            tested.extend(calls.map(|call| family(&call.kernel.name)));
        }
        assert!(named.len() > 10, "{named:?}");
        assert_eq!(named.difference(&tested).collect::<Vec<_>>(), [""; 0]);
    }
}
