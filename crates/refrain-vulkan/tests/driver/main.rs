//! The runtime on a real driver. Debian's software driver serves:
//! `apt install mesa-vulkan-drivers libvulkan1 vulkan-validationlayers`.

use std::cell::RefCell;
use std::sync::Arc;

use refrain_vulkan::{
    Access, Choice, Command, CommandList, Device, Error, Feature, FeatureSet, Kernel, MemoryClass, OpenOptions,
    Options, Vulkan,
};

/// Every test runs under core and synchronization validation; with `REFRAIN_GPU_ASSISTED` in the
/// environment, shaders are instrumented too.
fn vulkan() -> Vulkan {
    let gpu_assisted = std::env::var_os("REFRAIN_GPU_ASSISTED").is_some();
    load(gpu_assisted)
}

fn load(gpu_assisted: bool) -> Vulkan {
    Vulkan::load(Options {
        validation: true,
        gpu_assisted,
    })
    .expect("these tests need a Vulkan driver and the validation layer")
}

fn open(vulkan: &Vulkan, options: &OpenOptions) -> Arc<Device> {
    let index = vulkan.choose(&Choice::Auto).expect("a usable device");
    vulkan.open(index, options).expect("the device opens")
}

fn assert_silent(vulkan: &Vulkan) {
    assert_eq!(vulkan.validation_messages(), Vec::<String>::new());
}

const PREAMBLE: &str = "#version 460\n\
    #extension GL_EXT_buffer_reference : require\n\
    #extension GL_EXT_buffer_reference_uvec2 : require\n\
    #extension GL_EXT_scalar_block_layout : require\n\
    layout(local_size_x_id = 0) in;\n\
    layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint word[]; };\n";

/// `c[i] = a[i] + b[i]`, over `n` words.
fn add_kernel() -> Kernel {
    let body = "layout(push_constant, scalar) uniform Push { uvec2 a; uvec2 b; uvec2 c; uint n; };\n\
        void main() {\n\
            uint i = gl_GlobalInvocationID.x;\n\
            if (i < n) Words(c).word[i] = Words(a).word[i] + Words(b).word[i] + EXTRA;\n\
        }\n";
    Kernel {
        name: "add".to_owned(),
        source: format!("{PREAMBLE}{body}").into(),
        defines: vec![("EXTRA".to_owned(), "0u".to_owned())],
        constants: vec![(0, 64)],
        push_bytes: 28,
        subgroup_size: None,
    }
}

fn push(addresses: &[u64], n: u32) -> Vec<u8> {
    let addresses = addresses.iter().flat_map(|address| address.to_le_bytes());
    addresses.chain(n.to_le_bytes()).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn upload(device: &Device, buffer: &refrain_vulkan::Buffer, data: &[u8]) {
    let fill = &mut |offset: u64, part: &mut [u8]| {
        let offset = offset as usize;
        part.copy_from_slice(&data[offset..offset + part.len()]);
    };
    device.upload(buffer, 0, data.len() as u64, fill).unwrap();
}

/// Adds two vectors of `n` words on the device, doubled once more behind a barrier.
fn add_twice(device: &Device, kernel: &Kernel, n: u32) -> Vec<u32> {
    let size = 4 * u64::from(n);
    let (a, b): (Vec<u32>, Vec<u32>) = (0..n).map(|i| (i, 7 * i + 1)).unzip();
    let [in_a, in_b] = [a, b].map(|values| {
        let buffer = device.allocate(MemoryClass::Weight, size).unwrap();
        upload(device, &buffer, &bytes(&values));
        buffer
    });
    let sum = device.allocate(MemoryClass::Scratch, size).unwrap();
    let twice = device.allocate(MemoryClass::State, size).unwrap();
    let pipeline = device.pipeline(kernel).unwrap();
    let dispatch =
        |a: &refrain_vulkan::Buffer, b: &refrain_vulkan::Buffer, c: &refrain_vulkan::Buffer| Command::Dispatch {
            pipeline: pipeline.clone(),
            groups: [n.div_ceil(64), 1, 1],
            push: push(&[a.address(), b.address(), c.address()], n),
        };
    let list = CommandList {
        name: "add twice".to_owned(),
        commands: vec![
            Command::Timestamp {
                region: "first".to_owned(),
            },
            dispatch(&in_a, &in_b, &sum),
            Command::Barrier,
            Command::Timestamp {
                region: "second".to_owned(),
            },
            dispatch(&sum, &sum, &twice),
        ],
        uses: vec![
            (in_a, Access::Read),
            (in_b, Access::Read),
            (sum, Access::Write),
            (twice.clone(), Access::Write),
        ],
    };
    device.submit(list).unwrap();
    let mut result = vec![0; size as usize];
    device.read(&twice, 0, &mut result).unwrap();
    words(&result)
}

fn expected(n: u32) -> Vec<u32> {
    (0..n).map(|i| 2 * (8 * i + 1)).collect()
}

#[test]
fn a_kernel_reads_and_writes_buffers_by_address() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    for n in [1, 63, 64, 65, 100_000] {
        assert_eq!(add_twice(&device, &add_kernel(), n), expected(n), "{n} words");
    }
    let counters = device.counters();
    assert_eq!((counters.dispatches, counters.pipelines_compiled), (10, 1));
    assert_eq!(counters.submits, 5 + counters.transfer_submits);
    assert_eq!(counters.transfer_submits, 15, "two uploads and a read-back each");
    assert!(counters.record_cpu_ns > 0);
    drop(device);
    assert_silent(&vulkan);
}

#[test]
fn bytes_of_every_length_come_back_as_they_went() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let allocations = device.counters().allocations;
    let ring = 32 << 20;
    for length in [0usize, 1, 3, 255, 4097, 1_000_003, ring + 12_345] {
        let data: Vec<u8> = (0..length).map(|i| (i * 31 + i / 251) as u8).collect();
        let buffer = device.allocate(MemoryClass::Weight, length as u64).unwrap();
        assert_eq!(buffer.address() % 256, 0);
        upload(&device, &buffer, &data);
        let mut back = vec![0xaa; length];
        device.read(&buffer, 0, &mut back).unwrap();
        assert!(back == data, "{length} bytes differ");
        if length > 2 {
            let mut part = vec![0; length / 2];
            device.read(&buffer, 1, &mut part).unwrap();
            assert!(part == data[1..1 + length / 2]);
        }
        let error = device.read(&buffer, 1, &mut back).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    let control = device.allocate(MemoryClass::Control, 8).unwrap();
    device.write_control(&control, 3, b"hello").unwrap();
    let mut back = [0; 5];
    device.read(&control, 3, &mut back).unwrap();
    assert_eq!(&back, b"hello");
    assert!(device.counters().allocations > allocations);
    drop((control, device));
    assert_silent(&vulkan);
}

#[test]
fn the_host_sees_what_kernels_write_to_control_memory() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let control = device.allocate(MemoryClass::Control, 12).unwrap();
    device.write_control(&control, 0, &bytes(&[40, 2, 0])).unwrap();
    let at = |word: u64| control.address() + 4 * word;
    let before = device.counters();
    let submission = device
        .submit(CommandList {
            name: "control".to_owned(),
            commands: vec![Command::Dispatch {
                pipeline: device.pipeline(&add_kernel()).unwrap(),
                groups: [1, 1, 1],
                push: push(&[at(0), at(1), at(2)], 1),
            }],
            uses: vec![(control.clone(), Access::Write)],
        })
        .unwrap();
    let mut sum = [0; 4];
    device.read(&control, 8, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 42);
    assert!(device.is_done(&submission));
    let since = device.counters() - before;
    assert_eq!(
        (since.copies, since.submits),
        (0, 1),
        "mapped memory is read without a copy"
    );
    drop((control, device));
    assert_silent(&vulkan);
}

#[test]
fn indirect_counts_and_copies_follow_a_full_barrier() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let [source, counts, result] = [0; 3].map(|_| device.allocate(MemoryClass::Scratch, 256).unwrap());
    upload(&device, &source, &bytes(&[2, 1, 1, 5]));
    let copy = |src_offset, dst: &refrain_vulkan::Buffer, bytes| Command::Copy {
        src: source.clone(),
        src_offset,
        dst: dst.clone(),
        dst_offset: 0,
        bytes,
    };
    let five = source.address() + 12;
    device
        .submit(CommandList {
            name: "indirect".to_owned(),
            commands: vec![
                copy(0, &counts, 12),
                copy(0, &result, 0),
                Command::FullBarrier,
                Command::DispatchIndirect {
                    pipeline: device.pipeline(&add_kernel()).unwrap(),
                    counts: counts.clone(),
                    offset: 0,
                    push: push(&[five, five, result.address()], 1),
                },
            ],
            uses: vec![
                (source.clone(), Access::Read),
                (counts.clone(), Access::Write),
                (result.clone(), Access::Write),
            ],
        })
        .unwrap();
    let mut sum = [0; 4];
    device.read(&result, 0, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 10);
    drop((source, counts, result, device));
    assert_silent(&vulkan);
}

#[test]
fn a_second_start_compiles_no_glsl_and_a_damaged_cache_does_no_harm() {
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
    // Debian 12's software driver never finds a pipeline in its cache; others must.
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
    assert_silent(&vulkan);
}

#[test]
fn timestamps_name_the_regions_of_a_list() {
    let vulkan = vulkan();
    let device = open(
        &vulkan,
        &OpenOptions {
            timestamps: true,
            ..OpenOptions::default()
        },
    );
    let control = device.allocate(MemoryClass::Control, 1024).unwrap();
    let region = |name: &str| Command::Timestamp {
        region: name.to_owned(),
    };
    let at = control.address();
    let work = Command::Dispatch {
        pipeline: device.pipeline(&add_kernel()).unwrap(),
        groups: [1, 1, 1],
        push: push(&[at, at, at], 64),
    };
    let list = CommandList {
        name: "timed".to_owned(),
        commands: vec![region("head"), work.clone(), region("tail"), work],
        uses: vec![(control.clone(), Access::Write)],
    };
    let submission = device.submit(list).unwrap();
    device.wait(&submission).unwrap();
    let timings = device.timings(&submission);
    let names: Vec<_> = timings.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["head", "tail"]);
    assert!(timings.iter().all(|(_, us)| (0.0..1e6).contains(us)), "{timings:?}");
    assert!(device.timings(&submission).is_empty(), "taken once");
    drop((control, device));
    assert_silent(&vulkan);
}

#[test]
fn buffers_and_pipelines_may_outlive_their_device_and_vulkan() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let buffer = device.allocate(MemoryClass::Weight, 1000).unwrap();
    let pipeline = device.pipeline(&add_kernel()).unwrap();
    upload(&device, &buffer, &[1; 1000]);
    drop(device);
    assert_eq!((buffer.bytes(), pipeline.name()), (1000, "add"));
    drop((buffer, pipeline));
    assert_silent(&vulkan);
}

#[test]
fn every_optional_feature_can_be_switched_off() {
    let vulkan = vulkan();
    let options = OpenOptions {
        disabled: FeatureSet::all(),
        ..OpenOptions::default()
    };
    let device = open(&vulkan, &options);
    assert!(device.features().is_empty(), "{}", device.features());
    assert_eq!(add_twice(&device, &add_kernel(), 100), expected(100));
    drop(device);
    assert_silent(&vulkan);
}

#[test]
fn a_required_subgroup_size_is_checked_against_the_device() {
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
    assert_silent(&vulkan);
}

#[test]
fn a_broken_shader_is_named_with_its_log() {
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
fn more_memory_than_there_is_is_refused_with_the_amounts() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let limit = device.info().limits.max_allocation_bytes;
    let error = device.allocate(MemoryClass::State, limit + 1).unwrap_err();
    assert!(matches!(error, Error::BufferTooLarge { .. }), "{error}");
    drop(device);
    assert_silent(&vulkan);
}

#[test]
fn threads_share_a_device() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    std::thread::scope(|scope| {
        for n in [100, 1000, 5000] {
            let device = &device;
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(add_twice(device, &add_kernel(), n), expected(n));
                }
            });
        }
    });
    drop(device);
    assert_silent(&vulkan);
}

#[test]
fn instrumented_shaders_tell_of_an_access_outside_every_buffer() {
    let vulkan = load(true);
    let device = open(&vulkan, &OpenOptions::default());
    assert_eq!(add_twice(&device, &add_kernel(), 100), expected(100));
    assert_silent(&vulkan);
    // Beyond the only control block.
    let control = device.allocate(MemoryClass::Control, 64).unwrap();
    let beyond = control.address() + (1 << 19);
    let submission = device
        .submit(CommandList {
            name: "beyond".to_owned(),
            commands: vec![Command::Dispatch {
                pipeline: device.pipeline(&add_kernel()).unwrap(),
                groups: [1, 1, 1],
                push: push(&[beyond, beyond, control.address()], 1),
            }],
            uses: vec![(control, Access::Write)],
        })
        .unwrap();
    device.wait(&submission).unwrap();
    let messages = vulkan.validation_messages();
    assert!(
        messages.iter().any(|text| text.contains("out of bounds")),
        "{messages:?}"
    );
}

#[test]
fn the_validation_layer_listens() {
    // Without this, silence elsewhere would prove nothing.
    let vulkan = load(false);
    let device = open(&vulkan, &OpenOptions::default());
    let long = Kernel {
        constants: vec![(0, 1 << 20)],
        ..add_kernel()
    };
    let made = device.pipeline(&long);
    let messages = vulkan.validation_messages();
    assert!(!messages.is_empty(), "a workgroup of a million lanes passed: {made:?}");
}
