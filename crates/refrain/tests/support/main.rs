//! The table of what is supported, `docs/support.md`: what the passes choose for each operation, dtype and
//! set of features. `UPDATE=1 cargo test -p refrain --test support` writes it anew.

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

What is computed by which kernel on a Vulkan device, for operands of each dtype. The table is what the
lowering passes choose; `UPDATE=1 cargo test -p refrain --test support` writes it anew, and the same
command without `UPDATE=1` fails where it is out of date.

In a kernel's name stand its family, what else tells its text apart, and the dtypes that it loads and
stores. `T` is the operands' dtype. Left out are the tags `+subgroup`, `+s16`, `+s8` and `+dot`, which say
whether the kernel uses subgroup arithmetic, 16-bit and 8-bit storage and dot products of bytes, and the hash
in the names of generated elementwise kernels. What is in *italics* is the error that evaluating gives. The scales of a quantised
matrix and what it is multiplied with may also be of different dtypes. Sizes are those in
`crates/refrain/tests/support/operations.rs`.

The CPU executor computes the same operations of the same dtypes, without kernels.
";

/// A device with all features, and devices with fewer: names and what they are made of.
fn devices() -> Vec<(&'static str, Device)> {
    let without = |features: &[Feature]| {
        let mut info = DeviceInfo::made_up("a GPU");
        features.iter().for_each(|&feature| info.features.remove(feature));
        info
    };
    let every = [Feature::Storage16, Feature::Storage8, Feature::SubgroupArithmetic];
    let least = DeviceInfo {
        limits: Limits::default(),
        ..without(&every)
    };
    let infos = [
        ("Every feature", without(&[])),
        ("Without `storage16`", without(&[Feature::Storage16])),
        ("Without `storage8`", without(&[Feature::Storage8])),
        ("Without `subgroup-arithmetic`", without(&[Feature::SubgroupArithmetic])),
        ("Without all three, and with the least limits that Vulkan allows", least),
    ];
    let open = |info| Device::vulkan(refrain_vulkan::Device::null(info));
    infos.into_iter().map(|(name, info)| (name, open(info))).collect()
}

/// What becomes of each operation, for each dtype.
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
    text.push_str("\n## Devices with fewer features\n\nWhere they differ from the tables above.\n");
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
fn the_table_of_supported_operations_is_current() {
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
        "docs/support.md is out of date, first where it says {differing:?} (written, current): \
         run UPDATE=1 cargo test -p refrain --test support"
    );
}

#[test]
fn the_executors_compute_the_same_operations_of_the_same_dtypes() {
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
fn kernels_use_only_the_features_that_a_device_has() {
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
