//! Pipelines compiled from kernels, with their caches in memory and on disk.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::backend::{Backend, Failure, RawPipeline};
use crate::cache::{DiskCache, hash};
use crate::counters::SharedCounters;
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::glsl;
use crate::info::{DeviceInfo, Limits};
use crate::kernel::{Kernel, Statistic};

/// A compiled kernel. Clones share it.
#[derive(Clone)]
pub struct Pipeline(Arc<PipelineInner>);

struct PipelineInner {
    backend: Arc<dyn Backend>,
    name: String,
    push_bytes: u32,
    raw: RawPipeline,
}

impl Pipeline {
    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the bytes of push constants that the kernel declares.
    pub fn push_bytes(&self) -> u32 {
        self.0.push_bytes
    }

    /// Returns statistics of the machine code: registers, shared memory, spills. Empty unless the device was opened
    /// with [`crate::OpenOptions::statistics`] and the driver has `VK_KHR_pipeline_executable_properties`.
    ///
    /// # Errors
    /// Fails if the driver fails.
    pub fn statistics(&self) -> Result<Vec<Statistic>, Error> {
        self.0.backend.statistics(self.0.raw).map_err(Failure::into_error)
    }

    pub(crate) fn raw(&self) -> RawPipeline {
        self.0.raw
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipeline {}", self.0.name)
    }
}

impl Drop for PipelineInner {
    fn drop(&mut self) {
        self.backend.destroy_pipeline(self.raw);
    }
}

/// The pipelines of a device: created on first use, kept until the device is closed.
pub(crate) struct Pipelines {
    backend: Arc<dyn Backend>,
    counters: Arc<SharedCounters>,
    info: Arc<DeviceInfo>,
    features: FeatureSet,
    disk: DiskCache,
    compiled: Mutex<HashMap<Kernel, Pipeline>>,
    /// Whether the pipeline cache of the driver has entries that the file does not.
    dirty: AtomicBool,
}

impl Pipelines {
    /// Loads the pipeline cache of this device, driver and build from the cache directory.
    pub fn new(
        backend: Arc<dyn Backend>,
        counters: Arc<SharedCounters>,
        info: Arc<DeviceInfo>,
        features: FeatureSet,
        disk: DiskCache,
    ) -> Self {
        if let Some(data) = disk.load(&pipeline_cache_file(&info)) {
            backend.merge_pipeline_cache(&data);
        }
        Self {
            backend,
            counters,
            info,
            features,
            disk,
            compiled: Mutex::default(),
            dirty: AtomicBool::new(false),
        }
    }

    /// Returns the pipeline of a kernel, compiled on first use.
    pub fn get(&self, kernel: &Kernel) -> Result<Pipeline, Error> {
        let lock = || self.compiled.lock().unwrap_or_else(|broken| broken.into_inner());
        if let Some(pipeline) = lock().get(kernel) {
            return Ok(pipeline.clone());
        }
        // Compile without the lock, so that other threads can compile too. If two threads compile the same kernel, the
        // first result is kept.
        let pipeline = self.compile(kernel)?;
        Ok(lock().entry(kernel.clone()).or_insert(pipeline).clone())
    }

    /// Compiles the kernels that are not compiled yet, in parallel. `progress` is called on this thread with the number
    /// done and the total.
    pub fn prepare(&self, kernels: &[Kernel], progress: &dyn Fn(usize, usize)) -> Result<(), Error> {
        let missing: Vec<&Kernel> = {
            let compiled = self.compiled.lock().unwrap_or_else(|broken| broken.into_inner());
            let mut seen = HashSet::new();
            kernels
                .iter()
                .filter(|k| !compiled.contains_key(*k) && seen.insert(*k))
                .collect()
        };
        let total = missing.len();
        progress(0, total);
        if total == 0 {
            return Ok(());
        }
        if rayon::current_thread_index().is_some() {
            // A worker of the pool must not block on other workers.
            for (done, kernel) in missing.into_iter().enumerate() {
                self.get(kernel)?;
                progress(done + 1, total);
            }
        } else {
            let (sender, receiver) = mpsc::channel();
            rayon::in_place_scope(|scope| {
                for kernel in missing {
                    let sender = sender.clone();
                    scope.spawn(move |_| {
                        // The receiver is only dropped after a failure, which it has reported.
                        let _ = sender.send(self.get(kernel).map(drop));
                    });
                }
                drop(sender);
                receiver.iter().enumerate().try_for_each(|(done, result)| {
                    progress(done + 1, total);
                    result
                })
            })?;
        }
        self.save();
        Ok(())
    }

    fn compile(&self, kernel: &Kernel) -> Result<Pipeline, Error> {
        self.check(kernel)?;
        let spirv = self.spirv(kernel)?;
        let (raw, hit) = self
            .backend
            .create_pipeline(kernel, &spirv)
            .map_err(|failure| match failure {
                Failure::Call(call, code) => Error::Driver {
                    call,
                    code: format!("{code}, for kernel {}", kernel.name),
                },
                other => other.into_error(),
            })?;
        self.counters.update(|counters| {
            counters.pipelines_compiled += 1;
            counters.pipeline_cache_hits += u64::from(hit);
        });
        if !hit {
            self.dirty.store(true, Ordering::Relaxed);
        }
        Ok(Pipeline(Arc::new(PipelineInner {
            backend: self.backend.clone(),
            name: kernel.name.clone(),
            push_bytes: kernel.push_bytes,
            raw,
        })))
    }

    fn check(&self, kernel: &Kernel) -> Result<(), Error> {
        let Limits {
            max_push_constants,
            min_subgroup_size,
            max_subgroup_size,
            ..
        } = self.info.limits;
        let limit = |message| {
            Err(Error::Limit {
                message: format!("kernel {}: {message}", kernel.name),
            })
        };
        if kernel.push_bytes > max_push_constants || !kernel.push_bytes.is_multiple_of(4) {
            return limit(format!(
                "{} bytes of push constants; the device supports multiples of 4 up to {}",
                kernel.push_bytes, max_push_constants
            ));
        }
        if let Some(size) = kernel.subgroup_size
            && self.features.contains(Feature::SubgroupSizeControl)
            && !(size.is_power_of_two() && (min_subgroup_size..=max_subgroup_size).contains(&size))
        {
            return limit(format!(
                "subgroup size {size}; the device supports {min_subgroup_size} to {max_subgroup_size}"
            ));
        }
        Ok(())
    }

    fn spirv(&self, kernel: &Kernel) -> Result<Vec<u32>, Error> {
        let file = spirv_file(kernel);
        if let Some(spirv) = self.disk.load(&file).and_then(|bytes| parse_spirv(&bytes)) {
            return Ok(spirv);
        }
        let spirv = glsl::compile(kernel.source.as_str(), &kernel.defines).map_err(|log| Error::Shader {
            kernel: kernel.name.clone(),
            log,
        })?;
        self.counters.update(|counters| counters.glsl_compiled += 1);
        let bytes: Vec<u8> = spirv.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.disk.store(&file, &bytes);
        Ok(spirv)
    }

    /// Writes the pipeline cache to disk, merged with what other processes wrote in the meantime.
    pub fn save(&self) {
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return;
        }
        let file = pipeline_cache_file(&self.info);
        if let Some(data) = self.disk.load(&file) {
            self.backend.merge_pipeline_cache(&data);
        }
        let data = self.backend.pipeline_cache_data();
        if !data.is_empty() {
            self.disk.store(&file, &data);
        }
    }

    /// Saves the cache and drops all pipelines. Nothing may run any more.
    pub fn close(&self) {
        self.save();
        self.compiled
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .clear();
    }

    /// Returns the warnings of the disk cache.
    pub fn warnings(&self) -> Vec<String> {
        self.disk.warnings()
    }
}

/// Parses SPIR-V; `None` if the bytes are anything else.
fn parse_spirv(bytes: &[u8]) -> Option<Vec<u32>> {
    // Header: magic number, version, generator, bound, schema (SPIR-V specification, 2.3).
    const MAGIC: u32 = 0x0723_0203;
    const HEADER_WORDS: usize = 5;
    let (words, []) = bytes.as_chunks::<4>() else {
        return None;
    };
    let spirv: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    (spirv.len() > HEADER_WORDS && spirv[0] == MAGIC).then_some(spirv)
}

fn spirv_file(kernel: &Kernel) -> String {
    let source_hash = kernel.source.hash().to_le_bytes();
    let mut parts: Vec<&[u8]> = vec![glsl::COMPILER.as_bytes(), &source_hash];
    for (name, value) in &kernel.defines {
        parts.extend([name.as_bytes(), value.as_bytes()]);
    }
    format!("{:032x}.spv", hash(&parts))
}

fn pipeline_cache_file(info: &DeviceInfo) -> String {
    let key = hash(&[
        env!("CARGO_PKG_VERSION").as_bytes(),
        &info.vendor_id.to_le_bytes(),
        &info.device_id.to_le_bytes(),
        &info.driver_version.to_le_bytes(),
        &info.cache_uuid,
        info.driver_info.as_bytes(),
    ]);
    format!("{key:032x}.pipelines")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_bytes_that_are_not_spirv() {
        let spirv = glsl::compile("#version 460\nvoid main() {}\n", &[]).unwrap();
        let bytes: Vec<u8> = spirv.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(parse_spirv(&bytes), Some(spirv));
        for other in [&[][..], &[0; 64], &bytes[..bytes.len() - 1], &bytes[..20]] {
            assert_eq!(parse_spirv(other), None, "{} bytes", other.len());
        }
    }
}
