//! The Vulkan device of the tests, and runs of calls on it.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use refrain_kernels::tuning::{self, Tuning};
use refrain_kernels::{Call, OperandSpec, Push, Traits, Values};
use refrain_testing::sample;
use refrain_vulkan::{Access, Command, CommandList, Device, DeviceChoice, MemoryClass, OpenOptions, Options, Vulkan};

use super::driver;

/// Guard bytes around each operand, which no kernel may write.
const GUARD: usize = 64;

/// Returns Vulkan and the device that tests run on, with core and synchronization validation. `REFRAIN_GPU_ASSISTED`
/// enables GPU-assisted validation of accesses through addresses. `REFRAIN_NO_VALIDATION` disables validation on
/// machines without the layer.
fn opened() -> &'static (Vulkan, Arc<Device>) {
    static OPENED: OnceLock<(Vulkan, Arc<Device>)> = OnceLock::new();
    OPENED.get_or_init(|| {
        let options = Options {
            validation: std::env::var_os("REFRAIN_NO_VALIDATION").is_none(),
            gpu_assisted: std::env::var_os("REFRAIN_GPU_ASSISTED").is_some(),
        };
        let vulkan = Vulkan::load(options).expect("Vulkan and the validation layer are installed");
        let index = vulkan.choose(&DeviceChoice::Auto).expect("a usable device");
        let options = OpenOptions {
            // Shared by all tests, so that each shader compiles once.
            cache_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("refrain")),
            ..OpenOptions::default()
        };
        let device = vulkan.open(index, &options).expect("the device opens");
        (vulkan, device)
    })
}

/// Returns the device that tests run on. Tests fail without one.
pub fn device() -> &'static Arc<Device> {
    &opened().1
}

/// Returns the device's traits, and the minimum that Vulkan guarantees.
pub fn variants() -> Vec<Traits> {
    vec![driver::traits(device()), Traits::minimal()]
}

/// Returns a sample of the tuning table's rows that fit such a device.
pub fn rows(traits: &Traits) -> Vec<&'static Tuning> {
    sample(tuning::TABLE.iter().filter(|row| row.fits(traits)), 3)
}

/// Runs the calls one after another on copies of the operands' bytes; returns the bytes of operand `output`. Fails if
/// bytes outside the operands change.
pub fn run(calls: &[Call], operands: &[Vec<u8>], output: usize) -> Vec<u8> {
    let mut arena = Arena::new();
    for operand in operands {
        arena.add(operand);
    }
    arena.run(calls);
    arena.read(output)
}

/// Operands in device memory, each between guard bytes.
#[derive(Default)]
pub struct Arena {
    operands: Vec<(refrain_vulkan::Buffer, usize)>,
}

impl Arena {
    /// Returns an arena without operands.
    pub fn new() -> Arena {
        Arena::default()
    }

    /// Adds an operand; operands are numbered in this order.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut guarded = vec![0xa5; GUARD];
        guarded.extend(bytes);
        guarded.resize(guarded.len().next_multiple_of(4) + GUARD, 0xa5);
        self.operands.push((upload(&guarded), bytes.len()));
    }

    /// Returns an operand's address.
    pub fn address(&self, operand: usize) -> u64 {
        self.operands[operand].0.address() + GUARD as u64
    }

    /// Submits the calls with a barrier after each.
    pub fn run(&self, calls: &[Call]) {
        let mut list = CommandList::new("kernel test");
        let mut records = Vec::new();
        for call in calls {
            let push = self.push_bytes(call, &mut records);
            let kernel = driver::translated(&call.kernel, push.len());
            let pipeline = device().pipeline(&kernel).unwrap_or_else(|error| {
                panic!("{}: {error}\n{}", kernel.name, kernel.source.as_str());
            });
            list.commands.push(Command::Dispatch {
                pipeline,
                groups: call.groups,
                push,
            });
            list.commands.push(Command::Barrier);
        }
        let written = self.operands.iter().map(|(buffer, _)| (buffer.clone(), Access::Write));
        let read = records.into_iter().map(|buffer| (buffer, Access::Read));
        list.uses = written.chain(read).collect();
        device().submit(list).expect("the calls are submitted");
    }

    /// Returns an operand's bytes, after checking its guard bytes.
    pub fn read(&self, operand: usize) -> Vec<u8> {
        let (buffer, length) = &self.operands[operand];
        let mut bytes = vec![0; buffer.bytes() as usize];
        device().read(buffer, 0, &mut bytes).expect("the result is read");
        let guards = bytes[..GUARD].iter().chain(&bytes[GUARD + length..]);
        let touched = guards.filter(|&&b| b != 0xa5).count();
        assert_eq!(touched, 0, "bytes around operand {operand} were written");
        assert_eq!(opened().0.validation_messages(), Vec::<String>::new());
        bytes[GUARD..GUARD + length].to_vec()
    }

    fn push_bytes(&self, call: &Call, records: &mut Vec<refrain_vulkan::Buffer>) -> Vec<u8> {
        let mut push = Vec::new();
        for member in &call.push {
            match member {
                Push::Address { operand, bytes } => {
                    let start = self.operands[*operand].0.address() + GUARD as u64;
                    push.extend((start + bytes).to_le_bytes());
                }
                Push::Record(words) => {
                    let record = upload(bytemuck::cast_slice(words));
                    push.extend(record.address().to_le_bytes());
                    records.push(record);
                }
                Push::U32(value) => push.extend(value.to_le_bytes()),
                Push::F32(value) => push.extend(value.to_le_bytes()),
            }
        }
        push
    }
}

fn upload(bytes: &[u8]) -> refrain_vulkan::Buffer {
    let length = bytes.len() as u64;
    let buffer = device()
        .allocate(MemoryClass::Scratch, length)
        .expect("memory for a test");
    device()
        .upload(&buffer, 0, length, &mut |offset, part| {
            part.copy_from_slice(&bytes[offset as usize..][..part.len()]);
        })
        .expect("upload");
    buffer
}

/// Reads an operand's values. Checks that bytes between its elements equal those in `before`.
pub fn values(operand: &OperandSpec, before: &[u8], after: &[u8]) -> Values {
    let size = operand.dtype.size();
    let mut untouched = after.to_vec();
    operand.layout.for_each(|i| {
        untouched[i * size..][..size].copy_from_slice(&before[i * size..][..size]);
    });
    assert_eq!(untouched, before, "bytes between elements were written");
    Values::load(operand.dtype, &operand.layout, after)
}
