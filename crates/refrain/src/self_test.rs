//! The self-test of a device: compares every kernel family with the plain-Rust reference of the CPU executor, which
//! shows whether the driver computes correctly.

mod cases;
mod random;

pub use cases::{FAMILIES, FLOATS, named};
pub use random::{RandomArrays, quantised};

use crate::{Array, DType, Device, Error, eval};

/// Name of a kernel family, and a function that builds its test programs on a device: named arrays whose values must be
/// the same on every device.
pub type FamilyTest = (&'static str, fn(&Device) -> Vec<(String, Array)>);

/// The result of testing one family.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyVerdict {
    /// The family's name, for users.
    pub family: &'static str,
    /// Number of results compared.
    pub compared: usize,
    /// The largest difference, as a fraction of the tolerance.
    pub worst: f32,
    /// What is wrong; `None` if the test passed.
    pub fault: Option<String>,
}

/// Tests families, such as [`FAMILIES`]. Takes seconds at most once kernels are compiled. Calls `progress` with the
/// number of families done and of all.
pub fn run(device: &Device, families: &[FamilyTest], progress: &dyn Fn(usize, usize)) -> Vec<FamilyVerdict> {
    let test = |(done, family): (usize, &FamilyTest)| {
        progress(done, families.len());
        verdict(*family, device)
    };
    let verdicts = families.iter().enumerate().map(test).collect();
    progress(families.len(), families.len());
    verdicts
}

fn verdict((family, build): FamilyTest, device: &Device) -> FamilyVerdict {
    let (found, expected) = (build(device), build(&Device::cpu()));
    let mut verdict = FamilyVerdict {
        family,
        compared: found.len(),
        worst: 0.0,
        fault: None,
    };
    let arrays: Vec<&Array> = found.iter().map(|(_, array)| array).collect();
    if let Err(error) = eval(&arrays) {
        verdict.fault = Some(error.to_string());
        return verdict;
    }
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        match compare(found, expected) {
            Ok(share) => verdict.worst = verdict.worst.max(share),
            Err(what) => {
                verdict.worst = f32::INFINITY;
                verdict.fault.get_or_insert(format!("{name}: {what}"));
            }
        }
    }
    verdict
}

/// The largest difference as a fraction of the tolerance: at most 1.
///
/// # Errors
/// What differs, or why the arrays could not be compared.
fn compare(found: &Array, expected: &Array) -> Result<f32, String> {
    let values = |array: &Array| -> Result<Vec<f32>, Error> { array.astype(DType::F32).to_vec() };
    let tolerance = match found.dtype() {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        _ => 0.0,
    };
    let (found, expected) = values(found)
        .and_then(|found| Ok((found, values(expected)?)))
        .map_err(|error| error.to_string())?;
    differ(&found, &expected, tolerance)
}

/// [`compare`] for values that may differ by `tolerance` times the largest expected absolute value.
fn differ(found: &[f32], expected: &[f32], tolerance: f32) -> Result<f32, String> {
    let largest = expected
        .iter()
        .fold(0.0, |largest: f32, value| largest.max(value.abs()));
    // Devices may flush subnormal numbers to zero.
    let allowed = (tolerance * largest).max(f32::MIN_POSITIVE);
    let mut worst = 0.0f32;
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let share = (found - expected).abs() / allowed;
        if share.is_nan() || share > 1.0 {
            return Err(format!(
                "element {index} is {found:?} instead of {expected:?} (±{allowed:.1e})"
            ));
        }
        worst = worst.max(share);
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use refrain_vulkan::DeviceInfo;

    use super::*;

    fn null() -> Device {
        Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")))
    }

    #[test]
    fn device_that_computes_nothing_fails_every_family() {
        let verdicts = run(&null(), FAMILIES, &|_, _| ());
        assert_eq!(verdicts.len(), FAMILIES.len());
        for verdict in verdicts {
            let fault = verdict.fault.unwrap_or_else(|| panic!("{} passed", verdict.family));
            assert!(fault.contains("instead of"), "{}: {fault}", verdict.family);
        }
    }

    #[test]
    fn reference_passes_its_own_test() {
        for verdict in run(&Device::cpu(), FAMILIES, &|_, _| ()) {
            assert_eq!((verdict.fault, verdict.worst), (None, 0.0), "{}", verdict.family);
        }
    }

    #[test]
    fn differences_beyond_the_tolerance_and_nan_are_reported() {
        assert_eq!(differ(&[1.0, 2.0], &[1.0, 2.0], 0.0), Ok(0.0));
        assert_eq!(differ(&[1.0, 2.0], &[1.5, 2.0], 0.5), Ok(0.5));
        let error = differ(&[1.0, 2.5], &[1.0, 2.0], 1e-3).unwrap_err();
        assert!(error.starts_with("element 1 is 2.5 instead of 2.0"), "{error}");
        assert!(differ(&[f32::NAN], &[0.0], 1.0).is_err());
    }
}
