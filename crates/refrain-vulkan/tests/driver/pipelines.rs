//! Kernels, features and the disk caches.

use super::*;

#[test]
fn reuses_the_disk_cache_and_ignores_damaged_files() {
    let vulkan = vulkan();
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        cache_dir: Some(directory.path().to_owned()),
        ..OpenOptions::default()
    };
    let kernels: Vec<Kernel> = ["0u", "1u", "2u", "2u"]
        .map(|extra| Kernel {
            defines: vec![("EXTRA".into(), extra.into())],
            ..add_kernel()
        })
        .to_vec();
    let start = || {
        let device = open(&vulkan, &options);
        let steps = RefCell::new(Vec::new());
        device
            .prepare(&kernels, &|done, total| steps.borrow_mut().push((done, total)))
            .unwrap();
        assert_eq!(steps.into_inner(), [(0, 3), (1, 3), (2, 3), (3, 3)]);
        assert_eq!(add_twice(&device, &kernels[0], 10), expected(10));
        assert!(device.warnings().is_empty());
        device.counters()
    };
    let first = start();
    assert_eq!((first.glsl_compiled, first.pipelines_compiled), (3, 3));
    let second = start();
    assert_eq!((second.glsl_compiled, second.pipelines_compiled), (0, 3));
    // The software driver of Debian 12 never hits its pipeline cache; others must.
    if !vulkan.devices()[0].name.contains("llvmpipe") {
        assert_eq!(second.pipeline_cache_hits, 3);
    }
    let mut files = 0;
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let path = file.unwrap().path();
        let mut content = std::fs::read(&path).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 0xff;
        std::fs::write(path, content).unwrap();
        files += 1;
    }
    assert!(files >= 3);
    assert_eq!(start().glsl_compiled, 3);
    assert_no_validation_messages(&vulkan);
}

#[test]
fn runs_with_every_optional_feature_disabled() {
    let vulkan = vulkan();
    let options = OpenOptions {
        disabled: FeatureSet::all(),
        ..OpenOptions::default()
    };
    let device = open(&vulkan, &options);
    assert!(device.features().is_empty(), "{}", device.features());
    assert_eq!(add_twice(&device, &add_kernel(), 100), expected(100));
    drop(device);
    assert_no_validation_messages(&vulkan);
}

#[test]
fn rejects_unsupported_subgroup_sizes() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let limits = &device.info().limits;
    let fits = Kernel {
        subgroup_size: Some(limits.max_subgroup_size),
        ..add_kernel()
    };
    assert!(device.pipeline(&fits).is_ok());
    if device.features().contains(Feature::SubgroupSizeControl) {
        let wrong = Kernel {
            subgroup_size: Some(2 * limits.max_subgroup_size),
            ..add_kernel()
        };
        let error = device.pipeline(&wrong).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
    }
    drop(device);
    assert_no_validation_messages(&vulkan);
}

#[test]
fn compile_errors_contain_the_kernel_name_and_log() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let broken = Kernel {
        source: "#version 460\nvoid main() { oops; }".into(),
        ..add_kernel()
    };
    let error = device.prepare(&[broken], &|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("add") && error.contains("oops"), "{error}");
}

#[test]
fn two_devices_share_a_cache_directory_concurrently() {
    let vulkan = vulkan();
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        cache_dir: Some(directory.path().to_owned()),
        ..OpenOptions::default()
    };
    let kernels: Vec<Kernel> = (0..20u32)
        .map(|extra| Kernel {
            defines: vec![("EXTRA".into(), extra.to_string())],
            ..add_kernel()
        })
        .collect();
    let start = || {
        let device = open(&vulkan, &options);
        device.prepare(&kernels, &|_, _| {}).unwrap();
        assert!(device.warnings().is_empty());
        device.counters().glsl_compiled
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(start), scope.spawn(start)];
        assert!(both.into_iter().map(|one| one.join().unwrap()).sum::<u64>() >= 20);
    });
    assert_eq!(start(), 0);
    let files: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    let is_complete = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.ends_with(".spv") || name.ends_with(".pipelines")
    };
    assert!(files.iter().all(is_complete), "temporary files remain: {files:?}");
    assert_no_validation_messages(&vulkan);
}
