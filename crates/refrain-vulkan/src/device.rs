//! An open device.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Queue};
use crate::cache::DiskCache;
use crate::class::MemoryClass;
use crate::command::CommandList;
use crate::counters::{Counters, Tally};
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::info::{DeviceInfo, DeviceKind, Heap, MatrixShape};
use crate::memory::{Allocator, Buffer};
use crate::null::{Null, NullEvent, NullOptions};
use crate::pipeline::{Kernel, Pipeline, Pipelines};
use crate::queues::Queues;
use crate::recording::Recording;
use crate::staging::{SLOT_BYTES, SLOTS, Staging};
use crate::stamps::SharedUses;

/// Reads longer than this go through the staging ring where the memory is not cached: the host
/// reads such memory word by word over the bus.
const UNCACHED_READ_BYTES: u64 = 4096;
/// How long a device may go without ending a list.
const PATIENCE: Duration = Duration::from_secs(120);
const SOFTWARE_PATIENCE: Duration = Duration::from_secs(1200);

/// How to open a device.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Features to leave unused although the device has them.
    pub disabled: FeatureSet,
    /// Where compiled shaders and pipelines are kept between runs; nowhere if `None`.
    pub cache_dir: Option<PathBuf>,
    /// Measure the regions of command lists on the device.
    pub timestamps: bool,
    /// Have the driver tell what became of each kernel ([`Pipeline::statistics`]), if it does so at all.
    pub statistics: bool,
    /// Run kernels on a queue family that draws nothing, where the device has one. The first that computes is
    /// taken otherwise, which usually draws too: which of them is faster differs between devices.
    pub compute_only_queue: bool,
    /// How long the device may go without ending a single command list before it counts as hanging; two
    /// minutes if `None`, and twenty for a driver that computes on the CPU.
    pub patience: Option<Duration>,
}

impl OpenOptions {
    fn patience_with(&self, kind: DeviceKind) -> Duration {
        let usual = match kind {
            DeviceKind::Software => SOFTWARE_PATIENCE,
            _ => PATIENCE,
        };
        self.patience.unwrap_or(usual)
    }
}

/// A submitted command list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Submission {
    /// The value that the compute queue's timeline has when the list has completed.
    pub value: u64,
}

/// An open device. It may be used from any thread.
pub struct Device {
    info: Arc<DeviceInfo>,
    features: FeatureSet,
    timestamps: bool,
    /// Whether uploads are carried out.
    keeps_contents: bool,
    backend: Arc<dyn Backend>,
    tally: Arc<Tally>,
    queues: Arc<Queues>,
    memory: Arc<Allocator>,
    staging: Staging,
    pipelines: Pipelines,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {}", self.info.name)
    }
}

impl Device {
    /// A device that records what it is asked and computes nothing; needs no driver.
    ///
    /// # Panics
    /// If `info` describes memory in which the staging ring does not fit.
    pub fn null(info: DeviceInfo) -> Arc<Self> {
        Self::null_with(info, NullOptions::default())
    }

    /// As [`Device::null`], but uploads are not even filled: for what is known of a program from its
    /// shapes alone, however large its weights are.
    ///
    /// # Panics
    /// As [`Device::null`].
    pub fn null_without_contents(info: DeviceInfo) -> Arc<Self> {
        let options = NullOptions {
            without_contents: true,
            ..NullOptions::default()
        };
        Self::null_with(info, options)
    }

    /// As [`Device::null`], a device that fails in the ways that `options` name.
    ///
    /// # Panics
    /// As [`Device::null`].
    pub fn null_with(info: DeviceInfo, options: NullOptions) -> Arc<Self> {
        let keeps_contents = !options.without_contents;
        let opening = OpenOptions {
            patience: options.patience,
            cache_dir: options.cache_dir.clone(),
            ..OpenOptions::default()
        };
        let features = info.features;
        let backend = Arc::new(Null::new(info.clone(), options));
        let made = Self::make(backend, info, features, opening, keeps_contents);
        made.expect("the made-up device has room for the staging ring")
    }

    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        info: DeviceInfo,
        features: FeatureSet,
        options: OpenOptions,
    ) -> Result<Arc<Self>, Error> {
        Self::make(backend, info, features, options, true)
    }

    fn make(
        backend: Arc<dyn Backend>,
        info: DeviceInfo,
        features: FeatureSet,
        options: OpenOptions,
        keeps_contents: bool,
    ) -> Result<Arc<Self>, Error> {
        let info = Arc::new(info);
        let tally = Arc::new(Tally::default());
        let period = info.limits.timestamp_period_ns;
        let patience = options.patience_with(info.kind);
        let queues = Arc::new(Queues::new(backend.clone(), tally.clone(), period, patience));
        let memory = Allocator::new(backend.clone(), queues.clone(), tally.clone(), info.clone());
        let ring = memory.allocate(MemoryClass::Staging, SLOTS * SLOT_BYTES)?;
        let copies = if features.contains(Feature::TransferQueue) {
            Queue::Transfer
        } else {
            Queue::Compute
        };
        let disk = DiskCache::new(options.cache_dir);
        let pipelines = Pipelines::new(backend.clone(), tally.clone(), info.clone(), features, disk);
        Ok(Arc::new(Self {
            info,
            features,
            timestamps: options.timestamps && period > 0.0,
            keeps_contents,
            backend,
            tally,
            queues,
            memory,
            staging: Staging::new(ring, copies),
            pipelines,
        }))
    }

    /// What is known of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Shapes (rows, columns, depth) in which a subgroup multiplies f16 with sums in f32, square ones and the largest first:
    /// none unless cooperative matrices, 16-bit floats and what kernels need beside them are there and not switched
    /// off.
    pub fn matrix_shapes_of_halves(&self) -> Vec<[u32; 3]> {
        let needed = [
            Feature::CooperativeMatrix,
            Feature::Float16,
            Feature::Storage16,
            Feature::SubgroupArithmetic,
            Feature::SubgroupShuffle,
        ];
        let limits = &self.info.limits;
        let has_one_size = limits.min_subgroup_size == limits.max_subgroup_size;
        let sized = has_one_size || self.features.contains(Feature::SubgroupSizeControl);
        if !sized || !needed.into_iter().all(|feature| self.features.contains(feature)) {
            return Vec::new();
        }
        let shapes = self.info.matrix_shapes.iter();
        let mut shapes: Vec<[u32; 3]> = shapes.filter_map(MatrixShape::of_halves).collect();
        shapes.sort_unstable_by_key(|&[m, n, k]| Reverse((m == n && n == k, m * n * k, m)));
        shapes.dedup();
        shapes
    }

    /// Whether regions of command lists are timed.
    pub fn measures_time(&self) -> bool {
        self.timestamps
    }

    /// What may be used of it: the device's features without those switched off.
    pub fn features(&self) -> &FeatureSet {
        &self.features
    }

    /// The heaps with budget and use as they are now.
    pub fn heaps(&self) -> Vec<Heap> {
        self.backend.heaps()
    }

    /// Bytes that buffers of a class may still take up, as far as the driver tells: over all heaps that serve
    /// it, each within its budget.
    pub fn room(&self, class: MemoryClass) -> u64 {
        self.memory.room(class)
    }

    /// Whether the device was lost, as far as is known. Then it can only be dropped, with all that was made
    /// on it, and opened again.
    pub fn is_lost(&self) -> bool {
        self.queues.is_lost()
    }

    /// Asks the driver whether the device still works. Not every driver says of a wait or of a counter that
    /// what was waited for will never happen.
    ///
    /// # Errors
    /// If it is lost.
    pub fn check_status(&self) -> Result<(), Error> {
        self.queues.check_device()
    }

    /// Notes that the device is lost: the caller has found out that what has completed was not done. From here
    /// on everything fails with the error returned.
    pub fn note_loss(&self) -> Error {
        self.queues.lose()
    }

    /// A buffer of `bytes` (0 is allowed), aligned to 256 bytes, its content undefined.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no memory fit for the class is left, in particular if a discrete
    /// card would have to use host memory, or a heap would go beyond its budget;
    /// [`Error::BufferTooLarge`] beyond the driver's limit.
    pub fn allocate(&self, class: MemoryClass, bytes: u64) -> Result<Buffer, Error> {
        self.memory.allocate(class, bytes)
    }

    /// Fills `bytes` of a buffer from `offset` on. `fill` is called with slices in order, each
    /// with its offset from the start of the upload, and writes all of it. Copies overlap the
    /// filling, and the last may still run on return; lists submitted later wait for them.
    ///
    /// # Errors
    /// If the range lies outside the buffer, or the device is lost.
    pub fn upload(
        &self,
        buffer: &Buffer,
        offset: u64,
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<(), Error> {
        buffer.check(offset, bytes)?;
        if !self.keeps_contents {
            return Ok(());
        }
        self.staging
            .upload(&self.queues, &self.tally, (buffer, offset), bytes, fill)
    }

    /// Writes into [`MemoryClass::Control`] memory at once. No submission that is still running
    /// may touch the buffer.
    ///
    /// # Errors
    /// If the range lies outside the buffer, the host does not see it, or a submission may be using it.
    pub fn write_control(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mapped = buffer.mapped(offset, data.len() as u64)?;
        let mapped = mapped.ok_or(Error::NotHostVisible { class: buffer.class() })?;
        if !self.queues.is_past(buffer.stamps().used()) {
            let buffer = format!("{buffer:?}");
            return Err(Error::InUse { buffer });
        }
        mapped.write(data);
        Ok(())
    }

    /// Reads bytes of a buffer from `offset` on. Waits for the last submission that writes that
    /// buffer, and for no other.
    ///
    /// # Errors
    /// If the range lies outside the buffer, or the device is lost.
    pub fn read(&self, buffer: &Buffer, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let bytes = data.len() as u64;
        let mapped = buffer.mapped(offset, bytes)?;
        let cached = self.info.memory_types[buffer.memory_type()].host_cached;
        match mapped {
            Some(mapped) if cached || bytes <= UNCACHED_READ_BYTES => {
                self.queues.wait_until(buffer.stamps().written())?;
                mapped.read(data);
            }
            _ => self.staging.read(&self.queues, &self.tally, (buffer, offset), data)?,
        }
        // Otherwise old bytes might pass for those that a lost device did not write.
        self.queues.check_device()
    }

    /// Reads memory that the host sees as it is now, in words of 4 bytes, each of which is old or new. What
    /// submissions write to it is there once the caller has seen them complete.
    ///
    /// # Errors
    /// If the range lies outside the buffer, or the host does not see it.
    pub fn peek(&self, buffer: &Buffer, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let mapped = buffer.mapped(offset, data.len() as u64)?;
        mapped
            .ok_or(Error::NotHostVisible { class: buffer.class() })?
            .read(data);
        Ok(())
    }

    /// The pipeline of a kernel, compiled on first need.
    ///
    /// # Errors
    /// If the shader does not compile, exceeds a limit, or the driver refuses it.
    pub fn pipeline(&self, kernel: &Kernel) -> Result<Pipeline, Error> {
        self.pipelines.get(kernel).map_err(|error| self.queues.noted(error))
    }

    /// Compiles those of the kernels that are not there yet, in parallel. `progress` is told, on
    /// this thread, how many of how many are done.
    ///
    /// # Errors
    /// As [`Device::pipeline`], for the first that fails.
    pub fn prepare(&self, kernels: &[Kernel], progress: &dyn Fn(usize, usize)) -> Result<(), Error> {
        let prepared = self.pipelines.prepare(kernels, progress);
        prepared.map_err(|error| self.queues.noted(error))
    }

    /// Submits a list. It starts after the lists before it and after uploads to what it uses.
    ///
    /// # Errors
    /// If a command exceeds a limit or its buffer, memory is short, or the device is lost.
    pub fn submit(&self, list: impl Borrow<CommandList>) -> Result<Submission, Error> {
        let list = list.borrow();
        list.check(&self.info.limits)?;
        let value = self.queues.submit(Queue::Compute, list, list.host_reads())?;
        Ok(Submission { value })
    }

    /// Translates a list once, to be submitted any number of times with [`Device::submit_recorded`]. Its
    /// regions are timed only where one submission of it is in flight at a time.
    ///
    /// # Errors
    /// As [`Device::submit`].
    pub fn record(&self, list: CommandList) -> Result<Recording, Error> {
        let mut recordings = self.record_copies(list, 1)?;
        Ok(recordings.remove(0))
    }

    /// [`Device::record`] several times, for regions that are timed while others of the same list are in
    /// flight.
    ///
    /// # Errors
    /// As [`Device::submit`].
    pub fn record_copies(&self, mut list: CommandList, copies: usize) -> Result<Vec<Recording>, Error> {
        list.check(&self.info.limits)?;
        let host_reads = list.host_reads();
        let uses = Arc::new(SharedUses::new(std::mem::take(&mut list.uses)));
        (0..copies)
            .map(|_| {
                let translated = self.queues.record(Queue::Compute, &list, host_reads, true)?;
                Ok(Recording::new(translated, uses.clone()))
            })
            .collect()
    }

    /// Submits recordings by one call to the driver. They start after the lists before them and after
    /// uploads to what they use, run one after another, and each completes by itself: the submissions
    /// returned are theirs, in order.
    ///
    /// # Errors
    /// If memory is short, or the device is lost.
    pub fn submit_recorded(&self, recordings: &[&Recording]) -> Result<Vec<Submission>, Error> {
        let last = self.queues.submit_recorded(recordings)?;
        let first = last + 1 - recordings.len() as u64;
        Ok((first..=last).map(|value| Submission { value }).collect())
    }

    /// Blocks until a submission has completed.
    ///
    /// # Errors
    /// If the device is lost or stands still, or the submission was never made on it.
    pub fn wait(&self, submission: &Submission) -> Result<(), Error> {
        self.queues.wait(Queue::Compute, submission.value)
    }

    /// Whether a submission has completed.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn is_done(&self, submission: &Submission) -> Result<bool, Error> {
        self.queues.poll(Queue::Compute, submission.value)
    }

    /// Whether a submission had completed when the device was last asked, for this or any other.
    pub fn is_known_done(&self, submission: &Submission) -> bool {
        self.queues.known_done(Queue::Compute, submission.value)
    }

    /// Microseconds that each region of a completed submission took on the device, in order.
    /// Empty if the device was opened without timestamps, the list names no region, it has not
    /// completed, or its timings were taken before.
    pub fn timings(&self, submission: &Submission) -> Vec<(String, f64)> {
        self.queues.timings(submission.value)
    }

    /// What the runtime did since the device was opened.
    pub fn counters(&self) -> Counters {
        self.tally.snapshot()
    }

    /// What went wrong without stopping anything, such as a cache that cannot be written.
    pub fn warnings(&self) -> Vec<String> {
        self.pipelines.warnings()
    }

    /// Everything that happened, in order, on a null device; empty on others.
    pub fn recorded(&self) -> Vec<NullEvent> {
        self.backend.recorded()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.queues.close();
        self.pipelines.close();
    }
}
