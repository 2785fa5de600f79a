use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use refrain_kernels::{Traits, tuning};
use refrain_vulkan::{DeviceChoice, DeviceKind, MemoryClass, OpenOptions, Options, Vulkan};

mod kernel;
mod matrix_cores;
mod traits;

pub(crate) use kernel::vulkan_kernel;

use crate::Error;
use crate::program::{ProgramCache, ProgramCounts};
use crate::storage::{HostBuffer, Memory, Storage};

/// A compute device: a Vulkan device or the CPU executor. Cheap to clone; every array refers to its device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    /// Dropped first, because programs hold kernels and memory of the device.
    programs: ProgramCache,
    backend: Backend,
    flushes: [AtomicU64; 3],
    compile_progress: OnceLock<CompileProgress>,
}

/// Called with the numbers of compiled kernels and of all kernels.
type CompileProgress = Box<dyn Fn(usize, usize) + Send + Sync>;

pub(crate) enum Backend {
    Cpu,
    Vulkan {
        device: Arc<refrain_vulkan::Device>,
        traits: Traits,
    },
}

/// Why work was submitted to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    Requested,
    ReadBack,
    SizeCap,
}

/// Number of submissions, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flushes {
    /// An evaluation or a function call was requested.
    pub requested: u64,
    /// The host read an array that was not evaluated yet.
    pub read_back: u64,
    /// One evaluation exceeded the size of a submit.
    pub size_cap: u64,
}

impl Device {
    /// The CPU executor: computes in f32 and needs no driver. All CPU devices share the host's memory.
    pub fn cpu() -> Device {
        Device::new(Backend::Cpu)
    }

    /// The best available Vulkan device.
    ///
    /// # Errors
    /// Fails if there is no Vulkan driver or no suitable device, or if the device does not open; the error says what is
    /// missing. [`Device::cpu`] needs none of them.
    pub fn auto() -> Result<Device, Error> {
        let vulkan = Vulkan::load(Options::default())?;
        let best = vulkan.choose(&DeviceChoice::Auto)?;
        Ok(Device::vulkan(vulkan.open(best, &OpenOptions::default())?))
    }

    /// Wraps an opened Vulkan device (or its null device, which records work and computes nothing).
    pub fn vulkan(device: Arc<refrain_vulkan::Device>) -> Device {
        let traits = traits::device_traits(device.info(), *device.features());
        let traits = Traits {
            matrix_cores: matrix_cores::detect(&device, &traits),
            ..traits
        };
        Device::new(Backend::Vulkan { device, traits })
    }

    /// This device with kernel settings from a text ([`refrain_kernels::tuning::read`]). Arrays and programs of the
    /// returned device are separate. The CPU executor ignores the settings.
    ///
    /// # Errors
    /// [`Error::Tuning`] if a setting is unknown or not supported by the device.
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
            programs: ProgramCache::default(),
            backend,
            flushes: Default::default(),
            compile_progress: OnceLock::new(),
        }))
    }

    /// Sets a callback `watch(done, total)` that reports the progress of kernel compilation. Only the first callback of
    /// a device is used.
    pub fn on_compile(&self, watch: impl Fn(usize, usize) + Send + Sync + 'static) {
        self.0.compile_progress.get_or_init(|| Box::new(watch));
    }

    pub(crate) fn report_compile_progress(&self, done: usize, total: usize) {
        if let Some(watch) = self.0.compile_progress.get().filter(|_| total > 0) {
            watch(done, total);
        }
    }

    /// The device name from the driver, or `CPU executor`.
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

    /// Whether shaders run on the CPU (lavapipe, SwiftShader).
    pub fn is_software(&self) -> bool {
        self.as_vulkan()
            .is_some_and(|device| device.info().kind == DeviceKind::Software)
    }

    /// Whether it is a GPU with memory of its own.
    pub fn is_discrete(&self) -> bool {
        self.as_vulkan()
            .is_some_and(|device| device.info().kind == DeviceKind::Discrete)
    }

    /// Maximum bytes of one array: the driver's limit of an allocation.
    pub fn max_buffer_bytes(&self) -> u64 {
        let limit = self.as_vulkan().map(|device| device.info().limits.max_allocation_bytes);
        limit.unwrap_or(u64::MAX)
    }

    /// Maximum number of multiplications per submit. A longer submit blocks the screen, and drivers take it for a hang
    /// (Windows resets the device after 2 seconds). Slow integrated GPUs do some 40 billion multiplications a second,
    /// discrete GPUs a hundred times as many.
    pub fn max_submit_work(&self) -> u64 {
        let kind = self.as_vulkan().map(|device| device.info().kind);
        match kind {
            Some(DeviceKind::Discrete) => 1 << 38,
            _ => 1 << 34,
        }
    }

    /// Whether matrix products of many tokens run on matrix cores.
    pub fn has_matrix_cores(&self) -> bool {
        matches!(self.backend(), Backend::Vulkan { traits, .. } if traits.matrix_cores.is_some())
    }

    /// The underlying Vulkan device, if any: for counters, memory statistics and timings.
    pub fn as_vulkan(&self) -> Option<&Arc<refrain_vulkan::Device>> {
        match &self.0.backend {
            Backend::Cpu => None,
            Backend::Vulkan { device, .. } => Some(device),
        }
    }

    /// Bytes that models may still use: within the device's memory budget, or available host memory for the CPU
    /// executor. `None` if that is unknown.
    pub fn free_memory(&self) -> Option<u64> {
        match self.as_vulkan() {
            None => free_host_memory(&std::fs::read_to_string("/proc/meminfo").ok()?),
            Some(device) => Some(device.free_bytes(MemoryClass::Weight)),
        }
    }

    /// Asks the driver whether the device still works. A wait on a lost device does not always fail.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn check_status(&self) -> Result<(), Error> {
        match self.as_vulkan() {
            Some(device) => Ok(device.check_status()?),
            None => Ok(()),
        }
    }

    /// Marks the device as lost, because work that it reported as done was not done. From now on everything fails with
    /// the returned error.
    pub fn mark_lost(&self) -> Error {
        match self.as_vulkan() {
            Some(device) => device.mark_lost().into(),
            None => Error::Call("the CPU executor did not complete its work".to_string()),
        }
    }

    /// Number of submissions so far, by reason.
    pub fn flushes(&self) -> Flushes {
        let [requested, read_back, size_cap] = &self.0.flushes;
        Flushes {
            requested: requested.load(Ordering::Relaxed),
            read_back: read_back.load(Ordering::Relaxed),
            size_cap: size_cap.load(Ordering::Relaxed),
        }
    }

    /// Counters of the device's program cache.
    pub fn program_counts(&self) -> ProgramCounts {
        self.0.programs.counts()
    }

    /// Frees memory that is kept for programs that are evaluated again and again.
    pub fn clear_cache(&self) {
        self.programs().rotation().clear();
    }

    /// What the last evaluations did, as text: which programs were lowered and why, and which updates copied an array.
    pub fn explain(&self) -> String {
        let ProgramCounts { lowerings, hits, .. } = self.program_counts();
        let log = self.programs().log();
        format!("programs: {lowerings} lowered, {hits} found in the cache\n{log}")
    }

    pub(crate) fn programs(&self) -> &ProgramCache {
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

    /// Fills `bytes` bytes from the start. `fill(offset, piece)` is called for consecutive pieces; the length of each
    /// but the last is a multiple of 4.
    pub(crate) fn fill(
        &self,
        storage: &Storage,
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<(), Error> {
        self.fill_from(storage, 0, bytes, fill)
    }

    /// [`Device::fill`] from byte `start` of the memory on.
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
            _ => unreachable!("memory belongs to the backend of its device"),
        }
    }

    /// Writes bytes into host-visible memory. No running work may use it.
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
            _ => unreachable!("memory belongs to the backend of its device"),
        }
    }

    /// Writes bytes into host-visible memory, once no submitted work uses it.
    pub(crate) fn write_after_uses(&self, storage: &Storage, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        if let (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) = (&self.0.backend, &storage.memory) {
            device.wait_for_uses(buffer)?;
        }
        self.write(storage, offset, bytes)
    }

    /// Reads words of host-visible memory as they are at this moment.
    pub(crate) fn peek(&self, storage: &Storage, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match (&self.0.backend, &storage.memory) {
            (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) => Ok(device.peek(buffer, offset, out)?),
            _ => self.read(storage, offset, out),
        }
    }

    /// Reads bytes back. Waits only for the last write to this buffer.
    pub(crate) fn read(&self, storage: &Storage, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match (&self.0.backend, &storage.memory) {
            (Backend::Vulkan { device, .. }, Memory::Vulkan(buffer)) => Ok(device.read(buffer, offset, out)?),
            (_, Memory::Host(buffer)) => {
                let words = buffer.read();
                out.copy_from_slice(&bytemuck::cast_slice(&words)[offset as usize..][..out.len()]);
                Ok(())
            }
            _ => unreachable!("memory belongs to the backend of its device"),
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn free_host_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_host_memory_is_read_in_bytes() {
        let meminfo = "MemTotal:  8000000 kB\nMemAvailable:    4096 kB\n";
        assert_eq!(free_host_memory(meminfo), Some(4 << 20));
        assert_eq!(free_host_memory("MemTotal: 8000000 kB\n"), None);
        assert_eq!(free_host_memory("MemAvailable: much kB"), None);
    }
}
