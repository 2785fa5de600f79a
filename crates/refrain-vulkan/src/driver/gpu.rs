//! An open logical device: its creation, its memory and its destruction.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use ash::khr::pipeline_executable_properties;
use ash::vk::{self, Handle};

use super::failure::{failed, failed_allocation};
use super::features::{self, Structures};
use super::instance::Instance;
use super::polling::Polling;
use super::probe::{Families, Probed};
use crate::backend::{Failure, RawMemory, RawRecording};
use crate::class::MemoryClass;
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::info::DeviceKind;
use crate::mapped::Mapped;
use crate::options::OpenOptions;
use crate::queue::Queue;

/// An open logical device.
pub(super) struct Gpu {
    pub(super) instance: Arc<Instance>,
    pub(super) physical: vk::PhysicalDevice,
    pub(super) device: ash::Device,
    pub(super) features: FeatureSet,
    pub(super) families: Families,
    pub(super) timestamps: bool,
    /// Set if statistics were requested and the driver supports them.
    pub(super) statistics: Option<pipeline_executable_properties::Device>,
    /// Reset command pools for reuse, by queue.
    pub(super) free_pools: [Mutex<Vec<RawRecording>>; 2],
    pub(super) queues: [vk::Queue; 2],
    pub(super) timelines: [vk::Semaphore; 2],
    /// Read-locked to create pipelines, write-locked to merge.
    pub(super) cache: RwLock<vk::PipelineCache>,
    pub(super) polling: Polling,
    /// Whether command lists are submitted to it. False for a compiler.
    can_submit: bool,
    /// Whether the device was closed while it hung. Then none of its objects may be touched any more.
    pub(super) abandoned: AtomicBool,
}

impl Gpu {
    /// Opens a device with the features that are not disabled.
    pub fn open(instance: Arc<Instance>, probed: &Probed, options: &OpenOptions) -> Result<Self, Error> {
        let mut gpu = Self::open_compiler(instance, probed, options)?;
        gpu.can_submit = true;
        // If that fails, `drop` cleans up.
        gpu.create_timelines().map_err(Failure::into_error)?;
        Ok(gpu)
    }

    /// Opens a device that runs nothing. The null hardware of drivers supports no more.
    pub fn open_compiler(instance: Arc<Instance>, probed: &Probed, options: &OpenOptions) -> Result<Self, Error> {
        let features = features::without_disabled(&probed.info.features, &options.disabled);
        let mut families = if options.compute_only_queue {
            probed.families.prefer_compute_only()
        } else {
            probed.families
        };
        if !features.contains(Feature::TransferQueue) {
            families.transfer = None;
        }
        let statistics = options.statistics && probed.statistics;
        let device = create_device(&instance, probed, &features, families, statistics)
            .map_err(|code| failed("vkCreateDevice")(code).into_error())?;
        // SAFETY: the device was created with one queue of each family.
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
            free_pools: Default::default(),
            queues: [compute, transfer],
            timelines: [vk::Semaphore::null(); 2],
            cache: RwLock::new(vk::PipelineCache::null()),
            polling: Polling::new(software),
            can_submit: false,
            abandoned: AtomicBool::new(false),
        };
        // SAFETY: an empty cache has no preconditions.
        let cache = unsafe { gpu.device.create_pipeline_cache(&Default::default(), None) };
        let cache = cache
            .map_err(failed("vkCreatePipelineCache"))
            .map_err(Failure::into_error)?;
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

    /// Blocks until the timeline of a queue reaches a value, or for the given time. Returns whether it was reached.
    pub(super) fn wait_for(&self, queue: Queue, value: u64, nanoseconds: u64) -> Result<bool, Failure> {
        let (semaphores, values) = ([self.timelines[queue as usize]], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline semaphore.
        match unsafe { self.device.wait_semaphores(&info, nanoseconds) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(code) => Err(failed("vkWaitSemaphores")(code)),
        }
    }

    /// Returns the queue family of a queue.
    pub(super) fn family(&self, queue: Queue) -> u32 {
        match queue {
            Queue::Compute => self.families.compute,
            Queue::Transfer => self.families.transfer.unwrap_or(self.families.compute),
        }
    }

    pub(super) fn create_buffer(&self, bytes: u64) -> Result<vk::Buffer, Failure> {
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
            // Both queues access buffers alternately. Concurrent sharing costs nothing for buffers.
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(&families);
        }
        // SAFETY: size and usage are valid.
        unsafe { self.device.create_buffer(&info, None) }.map_err(failed_allocation("vkCreateBuffer"))
    }

    /// Allocates memory for a buffer and binds it; maps it if its class is mapped.
    pub(super) fn bind(
        &self,
        buffer: vk::Buffer,
        class: MemoryClass,
        memory_type: usize,
    ) -> Result<RawMemory, Failure> {
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
        // SAFETY: the memory was allocated for this buffer, which is not bound yet.
        unsafe { self.device.bind_buffer_memory(buffer, memory, 0) }
            .map_err(failed_allocation("vkBindBufferMemory"))?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: the buffer is bound and was created for device addresses.
        let address = unsafe { self.device.get_buffer_device_address(&info) };
        if !class.mapped() {
            return Ok((address, None));
        }
        // SAFETY: mapped classes only use host-visible, coherent types, and the memory is mapped once.
        let start = unsafe {
            self.device
                .map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
        };
        let start = start.map_err(failed_allocation("vkMapMemory"))?;
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or(Failure::Call("vkMapMemory", "null pointer returned".to_owned()))?;
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

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.is_abandoned() {
            return;
        }
        if self.can_submit {
            // SAFETY: no other thread has the device. If it is lost, nothing runs.
            let _ = unsafe { self.device.device_wait_idle() };
        }
        let cache = *self.cache.get_mut().unwrap_or_else(|broken| broken.into_inner());
        // SAFETY: buffers and pipelines hold a reference to the device, so all are dropped. Nothing runs, and each
        // object is destroyed once (destroying a null handle does nothing).
        unsafe {
            for pools in &mut self.free_pools {
                let pools = pools.get_mut().unwrap_or_else(|broken| broken.into_inner());
                for recording in pools.drain(..) {
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
