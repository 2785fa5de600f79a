//! The [`Backend`] of a real device.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ash::vk::{self, Handle};

use super::failure::failed;
use super::gpu::Gpu;
use super::probe;
use crate::backend::{Backend, Failure, RawMemory, RawPipeline, RawRecording, RecordRequest};
use crate::class::MemoryClass;
use crate::feature::Feature;
use crate::info::Heap;
use crate::kernel::{Kernel, Statistic};
use crate::queue::Queue;

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
        // SAFETY: the caller guarantees that nothing uses it any more.
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
        let read = |functions| super::statistics::of(functions, vk::Pipeline::from_raw(pipeline.pipeline));
        self.statistics.as_ref().map_or(Ok(Vec::new()), read)
    }

    fn destroy_pipeline(&self, pipeline: RawPipeline) {
        if self.is_abandoned() {
            return;
        }
        // SAFETY: the caller guarantees that nothing uses it any more.
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
        // SAFETY: the data comes from a checksummed file keyed by device and driver, and the driver checks its header
        // again. The destination is locked. A failure only costs time.
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
        // SAFETY: the semaphore is a timeline semaphore.
        unsafe { self.device.get_semaphore_counter_value(self.timelines[queue as usize]) }
            .map_err(failed("vkGetSemaphoreCounterValue"))
    }

    fn wait(&self, queue: Queue, value: u64, timeout: Duration) -> Result<bool, Failure> {
        let (started, limit) = (Instant::now(), self.polling.limit().min(timeout));
        let mut is_over = false;
        while !is_over && started.elapsed() < limit {
            is_over = self.completed(queue)? >= value;
            std::hint::spin_loop();
        }
        let is_over = is_over || self.wait_for(queue, value, timeout.as_nanos() as u64)?;
        self.polling.waited(started.elapsed());
        Ok(is_over)
    }

    fn status(&self) -> Result<(), Failure> {
        // Vulkan has no call for this. Among the calls that return immediately, drivers check for a loss in a wait.
        for queue in Queue::ALL {
            self.completed(queue)?;
            self.wait_for(queue, 0, 0)?;
        }
        Ok(())
    }

    fn intervals(&self, recording: &RawRecording) -> Vec<u64> {
        super::record::intervals(self, recording)
    }

    fn wait_idle(&self) {
        // SAFETY: the device is being closed, so no other thread submits. If it is lost, nothing runs.
        let _ = unsafe { self.device.device_wait_idle() };
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        // Leak the instance, too.
        std::mem::forget(self.instance.clone());
    }
}
