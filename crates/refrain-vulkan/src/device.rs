//! An open device: the entry point for memory, pipelines, submissions and reads.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::backend::{Backend, RecordRequest};
use crate::cache::DiskCache;
use crate::class::MemoryClass;
use crate::command::CommandList;
use crate::counters::{Counters, SharedCounters};
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::info::{DeviceInfo, Heap, MatrixShape};
use crate::kernel::Kernel;
use crate::memory::{Allocator, Buffer};
use crate::null::{Null, NullOptions};
use crate::null_event::NullEvent;
use crate::options::OpenOptions;
use crate::pipeline::{Pipeline, Pipelines};
use crate::queue::Queue;
use crate::queues::Queues;
use crate::recording::Recording;
use crate::recording_uses::RecordingUses;
use crate::staging::{SLOT_BYTES, SLOTS, Staging};

/// Longer reads of uncached memory go through the staging ring: the host reads uncached memory word by word over the
/// bus.
const UNCACHED_READ_BYTES: u64 = 4096;
/// A submitted command list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Submission {
    /// Value of the timeline of the compute queue once the list has completed.
    pub value: u64,
}

/// An open device. All methods may be called from any thread.
pub struct Device {
    info: Arc<DeviceInfo>,
    features: FeatureSet,
    timestamps: bool,
    /// Whether uploads are executed. False for a null device without contents.
    keeps_contents: bool,
    backend: Arc<dyn Backend>,
    counters: Arc<SharedCounters>,
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
    /// Opens a null device: it records all calls and computes nothing. It needs no driver.
    ///
    /// # Panics
    /// Panics if the memory that `info` describes is too small for the staging ring.
    pub fn null(info: DeviceInfo) -> Arc<Self> {
        Self::null_with(info, NullOptions::default())
    }

    /// As [`Device::null`], but ignores uploads. This allows programs with large weights to be planned from their
    /// shapes alone.
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

    /// As [`Device::null`], with the faults and stubs in `options`.
    ///
    /// # Panics
    /// As [`Device::null`].
    pub fn null_with(info: DeviceInfo, options: NullOptions) -> Arc<Self> {
        let keeps_contents = !options.without_contents;
        let open_options = OpenOptions {
            stall_timeout: options.stall_timeout,
            cache_dir: options.cache_dir.clone(),
            keep_scratch: options.keep_scratch,
            ..OpenOptions::default()
        };
        let features = info.features;
        let backend = Arc::new(Null::new(info.clone(), options));
        let device = Self::make(backend, info, features, open_options, keeps_contents);
        device.expect("the staging ring fits the memory of the null device")
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
        let counters = Arc::new(SharedCounters::default());
        let period = info.limits.timestamp_period_ns;
        let stall_timeout = options.stall_timeout_for(info.kind);
        let queues = Arc::new(Queues::new(backend.clone(), counters.clone(), period, stall_timeout));
        let memory = Allocator::new(
            backend.clone(),
            queues.clone(),
            counters.clone(),
            info.clone(),
            options.keep_scratch,
        );
        let ring = memory.allocate(MemoryClass::Staging, SLOTS * SLOT_BYTES)?;
        let copies = if features.contains(Feature::TransferQueue) {
            Queue::Transfer
        } else {
            Queue::Compute
        };
        let disk = DiskCache::new(options.cache_dir);
        let pipelines = Pipelines::new(backend.clone(), counters.clone(), info.clone(), features, disk);
        Ok(Arc::new(Self {
            info,
            features,
            timestamps: options.timestamps && period > 0.0,
            keeps_contents,
            backend,
            counters,
            queues,
            memory,
            staging: Staging::new(ring, copies),
            pipelines,
        }))
    }

    /// Returns the properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns the shapes (rows, columns, depth) in which a subgroup multiplies f16 matrices with f32 accumulation.
    /// Square shapes come first, then larger ones. Empty unless cooperative matrices, 16-bit floats and the other
    /// features the kernels need are present and enabled.
    pub fn f16_matrix_shapes(&self) -> Vec<[u32; 3]> {
        let needed = [
            Feature::CooperativeMatrix,
            Feature::Float16,
            Feature::Storage16,
            Feature::SubgroupArithmetic,
            Feature::SubgroupShuffle,
        ];
        let limits = &self.info.limits;
        let has_one_size = limits.min_subgroup_size == limits.max_subgroup_size;
        let has_known_size = has_one_size || self.features.contains(Feature::SubgroupSizeControl);
        if !has_known_size || !needed.into_iter().all(|feature| self.features.contains(feature)) {
            return Vec::new();
        }
        let shapes = self.info.matrix_shapes.iter();
        let mut shapes: Vec<[u32; 3]> = shapes.filter_map(MatrixShape::f16_shape).collect();
        shapes.sort_unstable_by_key(|&[m, n, k]| Reverse((m == n && n == k, m * n * k, m)));
        shapes.dedup();
        shapes
    }

    /// Whether regions of command lists are timed.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps
    }

    /// Returns the enabled features: those of the device without the disabled ones.
    pub fn features(&self) -> &FeatureSet {
        &self.features
    }

    /// Returns the heaps with their current budget and usage.
    pub fn heaps(&self) -> Vec<Heap> {
        self.backend.heaps()
    }

    /// Returns how many more bytes the driver can allocate for a class, summed over its heaps, each within its budget.
    pub fn free_bytes(&self, class: MemoryClass) -> u64 {
        self.memory.free_bytes(class)
    }

    /// Whether the device is known to be lost. A lost device can only be dropped, with everything created from it, and
    /// opened again.
    pub fn is_lost(&self) -> bool {
        self.queues.is_lost()
    }

    /// Checks with the driver that the device still works. Not every driver reports a loss from a wait or a counter.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn check_status(&self) -> Result<(), Error> {
        self.queues.check_device()
    }

    /// Marks the device as lost, for a caller that found that completed work was not done. Returns the error with which
    /// all later calls fail.
    pub fn mark_lost(&self) -> Error {
        self.queues.mark_lost()
    }

    /// Allocates a buffer of `bytes` (may be 0), aligned to 256 bytes, with undefined content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no memory suitable for the class is left: in particular, if a discrete card would have
    /// to use host memory, or a heap would exceed its budget. [`Error::BufferTooLarge`] beyond the limit of the driver.
    pub fn allocate(&self, class: MemoryClass, bytes: u64) -> Result<Buffer, Error> {
        self.memory.allocate(class, bytes)
    }

    /// Uploads `bytes` to a buffer, starting at `offset`. `fill` is called with consecutive slices, each with its
    /// offset from the start of the upload, and must write each slice completely. Copies overlap with filling, and the
    /// last ones may still run on return. Lists submitted later wait for them.
    ///
    /// # Errors
    /// Fails if the range lies outside the buffer or the device is lost.
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
            .upload(&self.queues, &self.counters, (buffer, offset), bytes, fill)
    }

    /// Writes to [`MemoryClass::Control`] memory immediately. No running submission may access the buffer.
    ///
    /// # Errors
    /// Fails if the range lies outside the buffer, the buffer is not host-visible, or a submission may be using it.
    pub fn write_control(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mapped = buffer.mapped(offset, data.len() as u64)?;
        let mapped = mapped.ok_or(Error::NotHostVisible { class: buffer.class() })?;
        if !self.queues.has_passed(buffer.uses().used()) {
            let buffer = format!("{buffer:?}");
            return Err(Error::InUse { buffer });
        }
        mapped.write(data);
        Ok(())
    }

    /// Waits until no submission accesses the buffer.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn wait_for_uses(&self, buffer: &Buffer) -> Result<(), Error> {
        self.queues.wait_for_point(buffer.uses().used())
    }

    /// Reads from a buffer, starting at `offset`. Waits only for the last submission that writes this buffer.
    ///
    /// # Errors
    /// Fails if the range lies outside the buffer or the device is lost.
    pub fn read(&self, buffer: &Buffer, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let bytes = data.len() as u64;
        let mapped = buffer.mapped(offset, bytes)?;
        let cached = self.info.memory_types[buffer.memory_type()].host_cached;
        match mapped {
            Some(mapped) if cached || bytes <= UNCACHED_READ_BYTES => {
                self.queues.wait_for_point(buffer.uses().written())?;
                mapped.read(data);
            }
            _ => self
                .staging
                .read(&self.queues, &self.counters, (buffer, offset), data)?,
        }
        // Otherwise stale bytes could pass for those that a lost device never wrote.
        self.queues.check_device()
    }

    /// Reads host-visible memory without waiting, in words of 4 bytes, each of which is old or new. Writes of a
    /// submission are visible once the caller has seen it complete.
    ///
    /// # Errors
    /// Fails if the range lies outside the buffer or the buffer is not host-visible.
    pub fn peek(&self, buffer: &Buffer, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let mapped = buffer.mapped(offset, data.len() as u64)?;
        mapped
            .ok_or(Error::NotHostVisible { class: buffer.class() })?
            .read(data);
        Ok(())
    }

    /// Returns the pipeline of a kernel, compiled on first use.
    ///
    /// # Errors
    /// Fails if the shader does not compile, exceeds a limit, or the driver rejects it.
    pub fn pipeline(&self, kernel: &Kernel) -> Result<Pipeline, Error> {
        self.pipelines
            .get(kernel)
            .map_err(|error| self.queues.record_loss(error))
    }

    /// Compiles the kernels that are not compiled yet, in parallel. `progress` is called on this thread with the number
    /// done and the total.
    ///
    /// # Errors
    /// As [`Device::pipeline`], for the first kernel that fails.
    pub fn prepare(&self, kernels: &[Kernel], progress: &dyn Fn(usize, usize)) -> Result<(), Error> {
        let prepared = self.pipelines.prepare(kernels, progress);
        prepared.map_err(|error| self.queues.record_loss(error))
    }

    /// Submits a list. It starts after earlier lists and after uploads to the buffers it uses.
    ///
    /// # Errors
    /// Fails if a command exceeds a limit or its buffer, memory runs out, or the device is lost.
    pub fn submit(&self, list: impl Borrow<CommandList>) -> Result<Submission, Error> {
        let list = list.borrow();
        list.check(&self.info.limits)?;
        let value = self.queues.submit(Queue::Compute, list, list.host_reads())?;
        Ok(Submission { value })
    }

    /// Records a list once, to be submitted any number of times with [`Device::submit_recorded`]. Its regions are timed
    /// only if at most one submission of it is in flight.
    ///
    /// # Errors
    /// As [`Device::submit`].
    pub fn record(&self, list: CommandList) -> Result<Recording, Error> {
        let mut recordings = self.record_copies(list, 1)?;
        Ok(recordings.remove(0))
    }

    /// Records a list several times, to time its regions while other copies of it are in flight.
    ///
    /// # Errors
    /// As [`Device::submit`].
    pub fn record_copies(&self, mut list: CommandList, copies: usize) -> Result<Vec<Recording>, Error> {
        list.check(&self.info.limits)?;
        let host_reads = list.host_reads();
        let uses = Arc::new(RecordingUses::new(std::mem::take(&mut list.uses)));
        let request = RecordRequest {
            queue: Queue::Compute,
            name: &list.name,
            commands: &list.commands,
            host_reads,
            reusable: true,
        };
        (0..copies)
            .map(|_| {
                let recorded = self.queues.record(&request)?;
                Ok(Recording::new(recorded, uses.clone()))
            })
            .collect()
    }

    /// Submits recordings in one call to the driver. They start after earlier lists and after uploads to the buffers
    /// they use, and run one after another. Each completes separately: returns one submission per recording, in order.
    ///
    /// # Errors
    /// Fails if memory runs out or the device is lost.
    pub fn submit_recorded(&self, recordings: &[&Recording]) -> Result<Vec<Submission>, Error> {
        let last = self.queues.submit_recorded(recordings)?;
        let first = last + 1 - recordings.len() as u64;
        Ok((first..=last).map(|value| Submission { value }).collect())
    }

    /// Blocks until a submission has completed.
    ///
    /// # Errors
    /// Fails if the device is lost or hangs, or the submission was never made on it.
    pub fn wait(&self, submission: &Submission) -> Result<(), Error> {
        self.queues.wait(Queue::Compute, submission.value)
    }

    /// Blocks until everything submitted so far has completed.
    ///
    /// # Errors
    /// Fails if the device is lost or hangs.
    pub fn wait_for_all(&self) -> Result<(), Error> {
        [Queue::Compute, Queue::Transfer]
            .into_iter()
            .try_for_each(|queue| self.queues.wait_for_last(queue))
    }

    /// Whether a submission has completed.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn is_done(&self, submission: &Submission) -> Result<bool, Error> {
        self.queues.poll(Queue::Compute, submission.value)
    }

    /// Whether a submission is already known to have completed. Does not ask the device.
    pub fn is_known_done(&self, submission: &Submission) -> bool {
        self.queues.known_done(Queue::Compute, submission.value)
    }

    /// Returns the device time of each region of a completed submission, in microseconds and in order. Empty if the
    /// device was opened without timestamps, the list has no region, it has not completed, or its timings were read
    /// before.
    pub fn timings(&self, submission: &Submission) -> Vec<(String, f64)> {
        self.queues.timings(submission.value)
    }

    /// Returns the counters of the work done since the device was opened.
    pub fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    /// Returns warnings, such as a cache that cannot be written.
    pub fn warnings(&self) -> Vec<String> {
        self.pipelines.warnings()
    }

    /// Returns all events of a null device, in order; empty on others.
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
