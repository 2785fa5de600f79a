//! Tests of the runtime on a real driver. The software driver of Debian suffices: `apt install mesa-vulkan-drivers
//! libvulkan1 vulkan-validationlayers`.

use std::cell::RefCell;
use std::sync::Arc;

use refrain_vulkan::{
    Access, Command, CommandList, Device, DeviceChoice, Error, Feature, FeatureSet, Kernel, MemoryClass, OpenOptions,
    Options, Vulkan,
};

mod pipelines;
mod submissions;
mod transfers;
mod validation;

/// Loads Vulkan with core and synchronization validation. `REFRAIN_GPU_ASSISTED` in the environment also instruments
/// shaders.
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
    let index = vulkan.choose(&DeviceChoice::Auto).expect("a usable device");
    vulkan.open(index, options).expect("the device opens")
}

fn assert_no_validation_messages(vulkan: &Vulkan) {
    assert_eq!(vulkan.validation_messages(), Vec::<String>::new());
}

const PREAMBLE: &str = "#version 460\n\
    #extension GL_EXT_buffer_reference : require\n\
    #extension GL_EXT_buffer_reference_uvec2 : require\n\
    #extension GL_EXT_scalar_block_layout : require\n\
    layout(local_size_x_id = 0) in;\n\
    layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint word[]; };\n";

/// Computes `c[i] = a[i] + b[i]` over `n` words.
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
        full_subgroups: false,
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

/// Adds two vectors of `n` words on the device, then doubles the sum after a barrier.
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
