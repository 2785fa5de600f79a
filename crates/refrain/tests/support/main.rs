//! The table of supported operations, `docs/support.md`: the kernels that are chosen for each operation, dtype and set
//! of features. `UPDATE=1 cargo test -p refrain --test support` rewrites it.

mod operations;
mod outcome;
mod table;

use std::path::Path;

use operations::Operation;
use outcome::Outcome;
use refrain::{DType, Device};
use refrain_vulkan::{DeviceInfo, Feature, Limits};

const INTRODUCTION: &str = "\
# Operations and their kernels

The kernels that compute each operation on a Vulkan device, for operands of each dtype, as the lowering passes choose
them. `UPDATE=1 cargo test -p refrain --test support` rewrites this table; without `UPDATE=1` the test fails if the table
is out of date.

A kernel's name has its family, further variants, and the dtypes that it loads and stores. `T` is the operands' dtype.
The tags `+subgroup`, `+s16`, `+s8` and `+dot` are omitted; they say whether the kernel uses subgroup arithmetic, 16-bit
and 8-bit storage, and dot products of bytes. The hash in the names of generated elementwise kernels is omitted too.
*Italics* are error messages of the evaluation. A quantised matrix may also have scales of another dtype than its other
operand. Sizes are in `crates/refrain/tests/support/operations.rs`.

The CPU executor supports the same operations and dtypes, without kernels.
";

/// Names and devices: one with all features, then devices with fewer.
fn devices() -> Vec<(&'static str, Device)> {
    let without = |features: &[Feature]| {
        let mut info = DeviceInfo::mock("a GPU");
        features.iter().for_each(|&feature| info.features.remove(feature));
        info
    };
    let every = [Feature::Storage16, Feature::Storage8, Feature::SubgroupArithmetic];
    let minimal = DeviceInfo {
        limits: Limits::default(),
        ..without(&every)
    };
    let infos = [
        ("Every feature", without(&[])),
        ("Without `storage16`", without(&[Feature::Storage16])),
        ("Without `storage8`", without(&[Feature::Storage8])),
        ("Without `subgroup-arithmetic`", without(&[Feature::SubgroupArithmetic])),
        ("Without all three, and with the minimum limits of Vulkan", minimal),
    ];
    let open = |info| Device::vulkan(refrain_vulkan::Device::null(info));
    infos.into_iter().map(|(name, info)| (name, open(info))).collect()
}

/// The outcomes of each operation, by dtype.
fn outcomes(device: &Device, operations: &[Operation]) -> Vec<(String, Vec<(DType, Outcome)>)> {
    let of = |operation: &Operation| {
        DType::ALL
            .map(|dtype| (dtype, Outcome::of(operation, device, dtype)))
            .to_vec()
    };
    operations.iter().map(|o| (o.name.clone(), of(o))).collect()
}

/// The whole document.
fn document() -> String {
    let sections = operations::sections();
    let devices = devices();
    let (whole, fewer) = devices.split_first().expect("there is a device with every feature");
    let mut text = INTRODUCTION.to_string();
    for (title, operations) in &sections {
        text.push_str(&format!(
            "\n## {title}\n\n{}",
            table::markdown(&outcomes(&whole.1, operations))
        ));
    }
    text.push_str("\n## Devices with fewer features\n\nDifferences from the tables above.\n");
    for (name, device) in fewer {
        text.push_str(&format!("\n### {name}\n\n"));
        let mut differing = vec![];
        for (_, operations) in &sections {
            let all = outcomes(&whole.1, operations)
                .into_iter()
                .zip(outcomes(device, operations));
            differing.extend(
                all.filter(|(with, without)| with != without)
                    .map(|(_, without)| without),
            );
        }
        text.push_str(&if differing.is_empty() {
            "The same kernels, without their tags.\n".to_string()
        } else {
            table::markdown(&differing)
        });
    }
    text
}

#[test]
fn table_of_supported_operations_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/support.md");
    let current = document();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(&path, &current).expect("the table can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = written
        .lines()
        .zip(current.lines())
        .find(|(written, current)| written != current);
    assert!(
        written == current,
        "docs/support.md is out of date; the first difference is {differing:?} (file, current): \
         run UPDATE=1 cargo test -p refrain --test support"
    );
}

#[test]
fn cpu_and_gpu_support_the_same_operations_and_dtypes() {
    let (cpu, [(_, gpu), ..]) = (Device::cpu(), &devices()[..]) else {
        unreachable!("there is a device with every feature")
    };
    for operation in operations::sections().iter().flat_map(|(_, operations)| operations) {
        for dtype in DType::ALL {
            let [on_cpu, on_gpu] = [&cpu, gpu].map(|device| Outcome::of(operation, device, dtype));
            assert_eq!(on_cpu.is_error(), on_gpu.is_error(), "{} of {dtype}", operation.name);
        }
    }
}

#[test]
fn kernels_use_only_enabled_features() {
    let sections = operations::sections();
    for (name, device) in devices() {
        let features = device.as_vulkan().expect("a null device").features();
        let tags = [
            (Feature::SubgroupArithmetic, "+subgroup"),
            (Feature::Storage16, "+s16"),
            (Feature::Storage8, "+s8"),
            (Feature::IntegerDot, "+dot"),
        ];
        for operation in sections.iter().flat_map(|(_, operations)| operations) {
            for kernel in DType::ALL
                .iter()
                .flat_map(|&dtype| outcome::kernels(operation, &device, dtype))
            {
                for (feature, tag) in tags {
                    assert_eq!(kernel.contains(tag), features.contains(feature), "{name}: {kernel}");
                }
            }
        }
    }
}
