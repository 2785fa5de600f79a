//! A device of a real driver: memory, pipelines, submissions and waits.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use ash::khr::pipeline_executable_properties;
use ash::vk::{self, Handle};

use super::features::{self, Structures};
use super::instance::Instance;
use super::probe::{self, Families, Probed};
use crate::backend::{Backend, Failure, Queue, RawMemory, RawPipeline, RawRecording, RecordRequest};
use crate::class::MemoryClass;
use crate::device::OpenOptions;
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::info::{DeviceKind, Heap};
use crate::mapped::Mapped;
use crate::pipeline::{Kernel, Statistic};

/// How long a wait asks the device over and over before it blocks: blocking wakes 30 to 300 µs
/// late. A software driver needs the processor itself.
const SPIN: Duration = Duration::from_micros(100);

/// An open device.
pub(super) struct Gpu {
    pub(super) instance: Arc<Instance>,
    physical: vk::PhysicalDevice,
    pub(super) device: ash::Device,
    pub(super) features: FeatureSet,
    pub(super) families: Families,
    pub(super) timestamps: bool,
    /// Where statistics are wanted, and the driver tells them.
    statistics: Option<pipeline_executable_properties::Device>,
    pub(super) spare: [Mutex<Vec<RawRecording>>; 2],
    pub(super) queues: [vk::Queue; 2],
    pub(super) timelines: [vk::Semaphore; 2],
    /// Creating pipelines shares it, merging has it alone.
    cache: RwLock<vk::PipelineCache>,
    spin: Duration,
    /// Whether it is given anything to run.
    runs: bool,
    /// Whether the device was closed while it stood still: then nothing of it may be touched any more.
    abandoned: AtomicBool,
}

/// Names a failed call.
pub(super) fn failed(call: &'static str) -> impl Fn(vk::Result) -> Failure {
    move |code| match code {
        vk::Result::ERROR_DEVICE_LOST => Failure::Lost,
        code => Failure::Call(call, format!("{code:?}")),
    }
}

/// As [`failed`], for calls that take memory for buffers.
fn failed_allocation(call: &'static str) -> impl Fn(vk::Result) -> Failure {
    move |code| match code {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => Failure::OutOfMemory,
        code => failed(call)(code),
    }
}

impl Gpu {
    /// Opens a device with the features that are not disabled.
    pub fn open(instance: Arc<Instance>, probed: &Probed, options: &OpenOptions) -> Result<Self, Error> {
        let mut gpu = Self::open_compiler(instance, probed, options)?;
        gpu.runs = true;
        // If that fails, dropping cleans up.
        gpu.create_timelines().map_err(Failure::plain)?;
        Ok(gpu)
    }

    /// Opens a device that is never given anything to run: the null hardware of drivers can do no more.
    pub fn open_compiler(instance: Arc<Instance>, probed: &Probed, options: &OpenOptions) -> Result<Self, Error> {
        let features = features::without_disabled(&probed.info.features, &options.disabled);
        let mut families = if options.compute_only_queue {
            probed.families.apart_from_graphics()
        } else {
            probed.families
        };
        if !features.contains(Feature::TransferQueue) {
            families.transfer = None;
        }
        let statistics = options.statistics && probed.statistics;
        let device = create_device(&instance, probed, &features, families, statistics)
            .map_err(|code| failed("vkCreateDevice")(code).plain())?;
        // SAFETY: one queue of each family was created with the device.
        let compute = unsafe { device.get_device_queue(families.compute, 0) };
        let transfer = match families.transfer {
            // SAFETY: as above.
            Some(family) => unsafe { device.get_device_queue(family, 0) },
            None => compute,
        };
        let software = probed.info.kind == DeviceKind::Software;
        let statistics = statistics.then(|| pipeline_executable_properties::Device::new(&instance.raw, &device));
        let mut gpu = Self {
            instance,
            physical: probed.physical,
            device,
            features,
            families,
            timestamps: options.timestamps && probed.info.limits.timestamp_period_ns > 0.0,
            statistics,
            spare: Default::default(),
            queues: [compute, transfer],
            timelines: [vk::Semaphore::null(); 2],
            cache: RwLock::new(vk::PipelineCache::null()),
            spin: if software { Duration::ZERO } else { SPIN },
            runs: false,
            abandoned: AtomicBool::new(false),
        };
        // SAFETY: an empty cache has no preconditions.
        let cache = unsafe { gpu.device.create_pipeline_cache(&Default::default(), None) };
        let cache = cache.map_err(failed("vkCreatePipelineCache")).map_err(Failure::plain)?;
        gpu.cache = RwLock::new(cache);
        Ok(gpu)
    }

    fn create_timelines(&mut self) -> Result<(), Failure> {
        for timeline in &mut self.timelines {
            let mut kind = vk::SemaphoreTypeCreateInfo::default()
                .semaphore_type(vk::SemaphoreType::TIMELINE)
                .initial_value(0);
            let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
            // SAFETY: timeline semaphores are enabled.
            *timeline = unsafe { self.device.create_semaphore(&info, None) }.map_err(failed("vkCreateSemaphore"))?;
        }
        Ok(())
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Blocks until a queue's timeline has reached a value, or for so many nanoseconds; whether it has.
    fn wait_for(&self, queue: Queue, value: u64, nanoseconds: u64) -> Result<bool, Failure> {
        let (semaphores, values) = ([self.timelines[queue as usize]], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline.
        match unsafe { self.device.wait_semaphores(&info, nanoseconds) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(code) => Err(failed("vkWaitSemaphores")(code)),
        }
    }

    /// The family of a queue.
    pub(super) fn family(&self, queue: Queue) -> u32 {
        match queue {
            Queue::Compute => self.families.compute,
            Queue::Transfer => self.families.transfer.unwrap_or(self.families.compute),
        }
    }

    fn create_buffer(&self, bytes: u64) -> Result<vk::Buffer, Failure> {
        use vk::BufferUsageFlags as Usage;
        let families = [self.families.compute, self.families.transfer.unwrap_or_default()];
        let mut info = vk::BufferCreateInfo::default().size(bytes).usage(
            Usage::STORAGE_BUFFER
                | Usage::INDIRECT_BUFFER
                | Usage::SHADER_DEVICE_ADDRESS
                | Usage::TRANSFER_SRC
                | Usage::TRANSFER_DST,
        );
        if self.families.transfer.is_some() {
            // Both queues touch buffers in turn; for buffers, sharing costs nothing.
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(&families);
        }
        // SAFETY: size and usage are valid.
        unsafe { self.device.create_buffer(&info, None) }.map_err(failed_allocation("vkCreateBuffer"))
    }

    /// Memory for a buffer, bound to it, and mapped if its class is.
    fn bind(&self, buffer: vk::Buffer, class: MemoryClass, memory_type: usize) -> Result<RawMemory, Failure> {
        // SAFETY: the buffer is valid.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        if needs.memory_type_bits & (1 << memory_type) == 0 {
            return Err(Failure::OutOfMemory);
        }
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(memory_type as u32)
            .push_next(&mut flags);
        // SAFETY: the memory type exists, and device addresses are enabled.
        let memory =
            unsafe { self.device.allocate_memory(&info, None) }.map_err(failed_allocation("vkAllocateMemory"))?;
        let bound = self.bind_to(buffer, memory, class, needs.size);
        if bound.is_err() {
            // SAFETY: the buffer is destroyed by the caller, and nothing else uses the memory.
            unsafe { self.device.free_memory(memory, None) };
        }
        let (address, mapped) = bound?;
        Ok(RawMemory {
            memory: memory.as_raw(),
            buffer: buffer.as_raw(),
            memory_type,
            bytes: needs.size,
            address,
            mapped,
        })
    }

    fn bind_to(
        &self,
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
        class: MemoryClass,
        bytes: u64,
    ) -> Result<(u64, Option<Mapped>), Failure> {
        // SAFETY: the memory was made for this buffer, which is not bound yet.
        unsafe { self.device.bind_buffer_memory(buffer, memory, 0) }
            .map_err(failed_allocation("vkBindBufferMemory"))?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: the buffer is bound and was created for addresses.
        let address = unsafe { self.device.get_buffer_device_address(&info) };
        if !class.mapped() {
            return Ok((address, None));
        }
        // SAFETY: mapped classes get host-visible, coherent types alone, and it is mapped once.
        let start = unsafe {
            self.device
                .map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
        };
        let start = start.map_err(failed_allocation("vkMapMemory"))?;
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or(Failure::Call("vkMapMemory", "a null pointer".to_owned()))?;
        // SAFETY: the driver mapped that many bytes, until the memory is freed.
        Ok((address, Some(unsafe { Mapped::new(start, bytes as usize) })))
    }
}

fn create_device(
    instance: &Instance,
    probed: &Probed,
    features: &FeatureSet,
    families: Families,
    statistics: bool,
) -> Result<ash::Device, vk::Result> {
    let mut extensions = features::extensions_for(features);
    if statistics {
        extensions.push(pipeline_executable_properties::NAME);
    }
    if probed.portability {
        extensions.push(ash::khr::portability_subset::NAME);
    }
    let names: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
    let queue = |family| {
        vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])
    };
    let queues: Vec<_> = [Some(families.compute), families.transfer]
        .into_iter()
        .flatten()
        .map(queue)
        .collect();
    let mut structures = Structures::enabling(features, probed.extended_types);
    structures.chained(&|name| extensions.contains(&name), |head| {
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(head);
        // SAFETY: families, extensions and features were probed on this device.
        unsafe { instance.raw.create_device(probed.physical, &info, None) }
    })
}

impl Backend for Gpu {
    fn heaps(&self) -> Vec<Heap> {
        let budgets = self.features.contains(Feature::MemoryBudget);
        probe::memory(&self.instance, self.physical, budgets).0
    }

    fn allocate(&self, class: MemoryClass, memory_type: usize, bytes: u64) -> Result<RawMemory, Failure> {
        let buffer = self.create_buffer(bytes)?;
        let bound = self.bind(buffer, class, memory_type);
        if bound.is_err() {
            // SAFETY: nothing uses the buffer.
            unsafe { self.device.destroy_buffer(buffer, None) };
        }
        bound
    }

    fn free(&self, memory: &RawMemory) {
        if self.is_abandoned() {
            return;
        }
        // SAFETY: the caller says that nothing uses it any more.
        unsafe {
            self.device.destroy_buffer(vk::Buffer::from_raw(memory.buffer), None);
            self.device.free_memory(vk::DeviceMemory::from_raw(memory.memory), None);
        }
    }

    fn create_pipeline(&self, kernel: &Kernel, spirv: &[u32]) -> Result<(RawPipeline, bool), Failure> {
        let cache = self.cache.read().unwrap_or_else(|broken| broken.into_inner());
        let flags = match self.statistics {
            Some(_) => vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR,
            None => vk::PipelineCreateFlags::empty(),
        };
        super::compile::create(&self.device, *cache, &self.features, kernel, spirv, flags)
    }

    fn statistics(&self, pipeline: RawPipeline) -> Result<Vec<Statistic>, Failure> {
        let of = |functions| super::statistics::of(functions, vk::Pipeline::from_raw(pipeline.pipeline));
        self.statistics.as_ref().map_or(Ok(Vec::new()), of)
    }

    fn destroy_pipeline(&self, pipeline: RawPipeline) {
        if self.is_abandoned() {
            return;
        }
        // SAFETY: the caller says that nothing uses it any more.
        unsafe {
            self.device
                .destroy_pipeline(vk::Pipeline::from_raw(pipeline.pipeline), None);
            self.device
                .destroy_pipeline_layout(vk::PipelineLayout::from_raw(pipeline.layout), None);
        }
    }

    fn merge_pipeline_cache(&self, data: &[u8]) {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
        let cache = self.cache.write().unwrap_or_else(|broken| broken.into_inner());
        // SAFETY: the data came out of a checksummed file keyed by device and driver, and the
        // driver checks its header again; the destination is locked. A failure costs only time.
        unsafe {
            if let Ok(other) = self.device.create_pipeline_cache(&info, None) {
                let _ = self.device.merge_pipeline_caches(*cache, &[other]);
                self.device.destroy_pipeline_cache(other, None);
            }
        }
    }

    fn pipeline_cache_data(&self) -> Vec<u8> {
        let cache = self.cache.read().unwrap_or_else(|broken| broken.into_inner());
        // SAFETY: the cache is valid.
        unsafe { self.device.get_pipeline_cache_data(*cache) }.unwrap_or_default()
    }

    fn record(&self, request: &RecordRequest<'_>) -> Result<RawRecording, Failure> {
        super::record::record(self, request)
    }

    fn recycle(&self, recording: RawRecording) {
        if !self.is_abandoned() {
            super::record::recycle(self, recording);
        }
    }

    fn submit(
        &self,
        queue: Queue,
        recordings: &[RawRecording],
        waits: &[(Queue, u64)],
        signal: u64,
    ) -> Result<(), Failure> {
        super::submit::submit(self, queue, recordings, waits, signal)
    }

    fn completed(&self, queue: Queue) -> Result<u64, Failure> {
        // SAFETY: the semaphore is a timeline.
        unsafe { self.device.get_semaphore_counter_value(self.timelines[queue as usize]) }
            .map_err(failed("vkGetSemaphoreCounterValue"))
    }

    fn wait(&self, queue: Queue, value: u64, timeout: Duration) -> Result<bool, Failure> {
        let started = Instant::now();
        while started.elapsed() < self.spin {
            if self.completed(queue)? >= value {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        self.wait_for(queue, value, timeout.as_nanos() as u64)
    }

    fn status(&self) -> Result<(), Failure> {
        // There is no call for it. Of those that take no time, a wait is the one at which drivers look.
        for queue in Queue::BOTH {
            self.completed(queue)?;
            self.wait_for(queue, 0, 0)?;
        }
        Ok(())
    }

    fn intervals(&self, recording: &RawRecording) -> Vec<u64> {
        super::record::intervals(self, recording)
    }

    fn wait_idle(&self) {
        // SAFETY: the device is being closed, so no other thread submits. If it is lost, nothing
        // runs either.
        let _ = unsafe { self.device.device_wait_idle() };
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        // The instance stays, too.
        std::mem::forget(self.instance.clone());
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.is_abandoned() {
            return;
        }
        if self.runs {
            self.wait_idle();
        }
        let cache = *self.cache.get_mut().unwrap_or_else(|broken| broken.into_inner());
        // SAFETY: buffers and pipelines hold the device, so all are gone; nothing runs, and each
        // object is destroyed once (destroying a null handle does nothing).
        unsafe {
            for spare in &mut self.spare {
                let spare = spare.get_mut().unwrap_or_else(|broken| broken.into_inner());
                for recording in spare.drain(..) {
                    let pool = vk::CommandPool::from_raw(recording.pool);
                    self.device.destroy_command_pool(pool, None);
                }
            }
            self.device.destroy_pipeline_cache(cache, None);
            for timeline in self.timelines {
                self.device.destroy_semaphore(timeline, None);
            }
            self.device.destroy_device(None);
        }
    }
}
