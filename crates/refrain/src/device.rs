use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use refrain_kernels::{Traits, tuning};
use refrain_vulkan::{Choice, DeviceKind, MemoryClass, OpenOptions, Options, Vulkan};

mod matrix_cores;
mod traits;

use crate::Error;
use crate::program::{ProgramCounts, Programs};
use crate::storage::{HostBuffer, Memory, Storage};

/// What computes: a Vulkan device, or the CPU executor. Cheap to clone; every array carries its device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    /// Goes first: programs hold kernels and memory of the device.
    programs: Programs,
    backend: Backend,
    flushes: [AtomicU64; 3],
    compiling: OnceLock<Watch>,
}

/// Hears how many of how many kernels are compiled.
type Watch = Box<dyn Fn(usize, usize) + Send + Sync>;

pub(crate) enum Backend {
    Cpu,
    Vulkan {
        device: Arc<refrain_vulkan::Device>,
        traits: Traits,
    },
}

/// Why recorded work was handed to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    Requested,
    ReadBack,
    SizeCap,
}

/// How often work was submitted, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flushes {
    /// An evaluation or a function call was asked for.
    pub requested: u64,
    /// The host wanted to read an array that was not evaluated yet.
    pub read_back: u64,
    /// One evaluation held more dispatches than one submit may.
    pub size_cap: u64,
}

impl Device {
    /// The CPU executor: everything in f32, no driver needed. All of them share the host's memory.
    pub fn cpu() -> Device {
        Device::new(Backend::Cpu)
    }

    /// The best Vulkan device that there is.
    ///
    /// # Errors
    /// Where there is no Vulkan driver, no device that it can use, or the device does not open; what is
    /// missing is said. [`Device::cpu`] needs none of them.
    pub fn auto() -> Result<Device, Error> {
        let vulkan = Vulkan::load(Options::default())?;
        let best = vulkan.choose(&Choice::Auto)?;
        Ok(Device::vulkan(vulkan.open(best, &OpenOptions::default())?))
    }

    /// An opened Vulkan device (or its null device, which records and computes nothing).
    pub fn vulkan(device: Arc<refrain_vulkan::Device>) -> Device {
        let traits = traits::of(device.info(), *device.features());
        let traits = Traits {
            matrix_cores: matrix_cores::found(&device, &traits),
            ..traits
        };
        Device::new(Backend::Vulkan { device, traits })
    }

    /// This device with kernels that are sized as a text of settings says ([`refrain_kernels::tuning::read`]), for arrays
    /// and programs of its own; the CPU executor has none of them.
    ///
    /// # Errors
    /// [`Error::Tuning`]: settings that there are not, or that the device cannot have.
    pub fn tuned(&self, settings: &str) -> Result<Device, Error> {
        let Backend::Vulkan { device, traits } = self.backend() else {
            return Ok(self.clone());
        };
        let tuning = Some(Arc::new(tuning::read(settings, traits)?));
        Ok(Device::new(Backend::Vulkan {
            device: device.clone(),
            traits: Traits {
                tuning,
                ..traits.clone()
            },
        }))
    }

    fn new(backend: Backend) -> Device {
        Device(Arc::new(Inner {
            programs: Programs::default(),
            backend,
            flushes: Default::default(),
            compiling: OnceLock::new(),
        }))
    }

    /// Has `watch(done, total)` called while kernels that a plan needs are compiled, so that a program can
    /// show it. Only the first watch of a device counts.
    pub fn on_compile(&self, watch: impl Fn(usize, usize) + Send + Sync + 'static) {
        self.0.compiling.get_or_init(|| Box::new(watch));
    }

    pub(crate) fn compiling(&self, done: usize, total: usize) {
        if let Some(watch) = self.0.compiling.get().filter(|_| total > 0) {
            watch(done, total);
        }
    }

    /// The device's name as the driver gives it, or `CPU executor`.
    pub fn name(&self) -> &str {
        match &self.0.backend {
            Backend::Cpu => "CPU executor",
            Backend::Vulkan { device, .. } => &device.info().name,
        }
    }

    /// Whether this is the CPU executor.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0.backend, Backend::Cpu)
    }

    /// Whether shaders are run by a processor (lavapipe, SwiftShader).
    pub fn is_software(&self) -> bool {
        self.as_vulkan()
            .is_some_and(|device| device.info().kind == DeviceKind::Software)
    }

    /// How many multiplications one submit should have at most: longer ones keep the screen from being
    /// drawn, and look to a driver like a hang (Windows ends them after 2 seconds). Slow integrated GPUs do
    /// some 40 thousand million a second, discrete ones a hundred times as many.
    pub fn most_work(&self) -> u64 {
        let kind = self.as_vulkan().map(|device| device.info().kind);
        match kind {
            Some(DeviceKind::Discrete) => 1 << 38,
            _ => 1 << 34,
        }
    }

    /// Whether products of many tokens run on matrix cores here.
    pub fn has_matrix_cores(&self) -> bool {
        matches!(self.backend(), Backend::Vulkan { traits, .. } if traits.matrix_cores.is_some())
    }

    /// The Vulkan device behind, if any: for counters, memory figures and timings.
    pub fn as_vulkan(&self) -> Option<&Arc<refrain_vulkan::Device>> {
        match &self.0.backend {
            Backend::Cpu => None,
            Backend::Vulkan { device, .. } => Some(device),
        }
    }

    /// Bytes that models may still take up: what the device has for them, within its budgets, or host memory
    /// without swapping for the CPU executor. `None` where nobody tells.
    pub fn free_memory(&self) -> Option<u64> {
        match self.as_vulkan() {
            None => free_host_memory(&std::fs::read_to_string("/proc/meminfo").ok()?),
            Some(device) => Some(device.room(MemoryClass::Weight)),
        }
    }

    /// Asks the driver whether the device still works: not every wait fails that waits for a lost device.
    ///
    /// # Errors
    /// If it is lost.
    pub fn check_status(&self) -> Result<(), Error> {
        match self.as_vulkan() {
            Some(device) => Ok(device.check_status()?),
            None => Ok(()),
        }
    }

    /// Notes that the device is lost: what it said to be done was never done. From here on everything fails with
    /// the error returned.
    pub fn note_loss(&self) -> Error {
        match self.as_vulkan() {
            Some(device) => device.note_loss().into(),
            None => Error::Call("the CPU executor has not done what it was given".to_string()),
        }
    }

    /// Submissions so far, by reason.
    pub fn flushes(&self) -> Flushes {
        let [requested, read_back, size_cap] = &self.0.flushes;
        Flushes {
            requested: requested.load(Ordering::Relaxed),
            read_back: read_back.load(Ordering::Relaxed),
            size_cap: size_cap.load(Ordering::Relaxed),
        }
    }

    /// Programs lowered so far for this device, and those found again.
    pub fn programs_counted(&self) -> ProgramCounts {
        self.0.programs.counts()
    }

    pub(crate) fn programs(&self) -> &Programs {
        &self.0.programs
    }

    pub(crate) fn count_flush(&self, reason: Flush) {
        self.0.flushes[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Whether both compute with the same memory.
    pub(crate) fn same(&self, other: &Device) -> bool {
        match (self.as_vulkan(), other.as_vulkan()) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn allocate(&self, class: MemoryClass, bytes: u64) -> Result<Storage, Error> {
        let memory = match &self.0.backend {
            Backend::Cpu => Memory::Host(Arc::new(HostBuffer::zeroed(bytes)?)),
            Backend::Vulkan { device, .. } => Memory::Vulkan(device.allocate(class, bytes.max(4))?),
        };
        Ok(Storage::new(memory, class))
    }

    /// Fills `bytes` bytes from the start: `fill(offset, piece)` is called for consecutive pieces,
    /// each a multiple of 4 bytes long except the last.
    pub(crate) fn fill(
        &self,
        storage: &Storage,
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<(), Error> {
        self.fill_from(storage, 0, bytes, fill)
    }

    /// As [`Device::fill`] from byte `start` of the memory on.
    pub(crate) fn fill_from(
        &self,
        storage: &Storage,
        start: u64,
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<(), Error> {
        match (&self.0.backend, &storage.memory) {
            (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) => Ok(device.upload(buffer, start, bytes, fill)?),
            (_, Memory::Host(buffer)) => {
                let mut words = buffer.write();
                fill(
                    0,
                    &mut bytemuck::cast_slice_mut(&mut words)[start as usize..][..bytes as usize],
                );
                Ok(())
            }
            _ => unreachable!("a storage stays with the device that made it"),
        }
    }

    /// Writes bytes into memory that the host sees. Nothing that still runs may use it.
    pub(crate) fn write(&self, storage: &Storage, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match (&self.0.backend, &storage.memory) {
            (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) => {
                Ok(device.write_control(buffer, offset, bytes)?)
            }
            (_, Memory::Host(buffer)) => {
                let mut words = buffer.write();
                bytemuck::cast_slice_mut(&mut words)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            _ => unreachable!("a storage stays with the device that made it"),
        }
    }

    /// Reads words of memory that the host sees, as they are now.
    pub(crate) fn peek(&self, storage: &Storage, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match (&self.0.backend, &storage.memory) {
            (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) => Ok(device.peek(buffer, offset, out)?),
            _ => self.read(storage, offset, out),
        }
    }

    /// Reads bytes back; waits only for the last write to this very buffer.
    pub(crate) fn read(&self, storage: &Storage, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match (&self.0.backend, &storage.memory) {
            (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) => Ok(device.read(buffer, offset, out)?),
            (_, Memory::Host(buffer)) => {
                let words = buffer.read();
                out.copy_from_slice(&bytemuck::cast_slice(&words)[offset as usize..][..out.len()]);
                Ok(())
            }
            _ => unreachable!("a storage stays with the device that made it"),
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Of what Linux tells in lines such as `MemAvailable:   1234 kB`, in bytes.
fn free_host_memory(told: &str) -> Option<u64> {
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_host_memory_is_read_in_bytes() {
        let told = "MemTotal:  8000000 kB\nMemAvailable:    4096 kB\n";
        assert_eq!(free_host_memory(told), Some(4 << 20));
        assert_eq!(free_host_memory("MemTotal: 8000000 kB\n"), None);
        assert_eq!(free_host_memory("MemAvailable: much kB"), None);
    }
}
