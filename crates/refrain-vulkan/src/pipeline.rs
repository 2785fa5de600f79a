//! Kernels and the pipelines made of them, with their caches.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::backend::{Backend, Failure, RawPipeline};
use crate::cache::{DiskCache, hash};
use crate::counters::Tally;
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::glsl::{self, ShaderText};
use crate::info::{DeviceInfo, Limits};

/// A shader's text and everything that specialises it. Kernels are equal that differ in their names alone.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// For people.
    pub name: String,
    /// Complete GLSL, from `#version` on, with a compute shader's `main`.
    pub source: ShaderText,
    /// Macros defined before the source.
    pub defines: Vec<(String, String)>,
    /// Specialisation constants: `constant_id` and the 32 bits of the value.
    pub constants: Vec<(u32, u32)>,
    /// Bytes of push constants, a multiple of 4.
    pub push_bytes: u32,
    /// Lanes of a subgroup that the kernel needs. Ignored without
    /// [`Feature::SubgroupSizeControl`].
    pub subgroup_size: Option<u32>,
    /// Workgroups consist of full subgroups: their first extent must be a multiple of a subgroup's. Ignored without
    /// [`Feature::FullSubgroups`].
    pub full_subgroups: bool,
}

impl Kernel {
    /// All that tells it from others.
    fn key(&self) -> impl Hash + Eq {
        let Self {
            name: _,
            source,
            defines,
            constants,
            push_bytes,
            subgroup_size,
            full_subgroups,
        } = self;
        let text = (source.identity(), defines, constants);
        (text, *push_bytes, *subgroup_size, *full_subgroups)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Kernel {}

impl Hash for Kernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A figure that a driver tells of a kernel's machine code. Which there are, and their names, differ between drivers.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistic {
    /// Such as `VGPRs`.
    pub name: String,
    /// The figure; yes is 1, no 0.
    pub value: f64,
}

/// A kernel ready to run. Cloning shares it.
#[derive(Clone)]
pub struct Pipeline(Arc<PipelineInner>);

struct PipelineInner {
    backend: Arc<dyn Backend>,
    name: String,
    push_bytes: u32,
    raw: RawPipeline,
}

impl Pipeline {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Bytes of push constants that it takes.
    pub fn push_bytes(&self) -> u32 {
        self.0.push_bytes
    }

    /// What the driver tells of its machine code: registers, shared memory, spills. Nothing unless the device was
    /// opened with [`crate::OpenOptions::statistics`] and the driver has `VK_KHR_pipeline_executable_properties`.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn statistics(&self) -> Result<Vec<Statistic>, Error> {
        self.0.backend.statistics(self.0.raw).map_err(Failure::plain)
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

/// The pipelines of a device: made on first need, kept until the device is closed.
pub(crate) struct Pipelines {
    backend: Arc<dyn Backend>,
    tally: Arc<Tally>,
    info: Arc<DeviceInfo>,
    features: FeatureSet,
    disk: DiskCache,
    made: Mutex<HashMap<Kernel, Pipeline>>,
    /// Whether the driver's cache holds something that the file does not.
    unsaved: AtomicBool,
}

impl Pipelines {
    /// Starts from what the cache directory holds for this device, driver and build.
    pub fn new(
        backend: Arc<dyn Backend>,
        tally: Arc<Tally>,
        info: Arc<DeviceInfo>,
        features: FeatureSet,
        disk: DiskCache,
    ) -> Self {
        if let Some(data) = disk.load(&driver_file(&info)) {
            backend.merge_pipeline_cache(&data);
        }
        Self {
            backend,
            tally,
            info,
            features,
            disk,
            made: Mutex::default(),
            unsaved: AtomicBool::new(false),
        }
    }

    /// The pipeline of a kernel, compiled if it is not there yet.
    pub fn get(&self, kernel: &Kernel) -> Result<Pipeline, Error> {
        let lock = || self.made.lock().unwrap_or_else(|broken| broken.into_inner());
        if let Some(pipeline) = lock().get(kernel) {
            return Ok(pipeline.clone());
        }
        // Not locked meanwhile: others compile too. Two threads after the same kernel both
        // compile it, and the first result stays.
        let pipeline = self.compile(kernel)?;
        Ok(lock().entry(kernel.clone()).or_insert(pipeline).clone())
    }

    /// Compiles those of the kernels that are not there yet, in parallel. `progress` hears how
    /// many of how many are done, on the calling thread.
    pub fn prepare(&self, kernels: &[Kernel], progress: &dyn Fn(usize, usize)) -> Result<(), Error> {
        let missing: Vec<&Kernel> = {
            let made = self.made.lock().unwrap_or_else(|broken| broken.into_inner());
            let mut seen = HashSet::new();
            kernels
                .iter()
                .filter(|k| !made.contains_key(*k) && seen.insert(*k))
                .collect()
        };
        let total = missing.len();
        progress(0, total);
        if total == 0 {
            return Ok(());
        }
        if rayon::current_thread_index().is_some() {
            // A worker of the pool must not block on its fellows.
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
                        // The receiver is gone only after a failure, which it has reported.
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
                other => other.plain(),
            })?;
        self.tally.count(|counters| {
            counters.pipelines_compiled += 1;
            counters.pipeline_cache_hits += u64::from(hit);
        });
        if !hit {
            self.unsaved.store(true, Ordering::Relaxed);
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
        let limit = |what| {
            Err(Error::Limit {
                what: format!("kernel {}: {what}", kernel.name),
            })
        };
        if kernel.push_bytes > max_push_constants || !kernel.push_bytes.is_multiple_of(4) {
            return limit(format!(
                "{} bytes of push constants; the device takes multiples of 4 up to {}",
                kernel.push_bytes, max_push_constants
            ));
        }
        if let Some(size) = kernel.subgroup_size
            && self.features.contains(Feature::SubgroupSizeControl)
            && !(size.is_power_of_two() && (min_subgroup_size..=max_subgroup_size).contains(&size))
        {
            return limit(format!(
                "subgroups of {size}; the device has {min_subgroup_size} to {max_subgroup_size}"
            ));
        }
        Ok(())
    }

    fn spirv(&self, kernel: &Kernel) -> Result<Vec<u32>, Error> {
        let file = spirv_file(kernel);
        if let Some(spirv) = self.disk.load(&file).and_then(|bytes| words_of_spirv(&bytes)) {
            return Ok(spirv);
        }
        let spirv = glsl::compile(kernel.source.as_str(), &kernel.defines).map_err(|log| Error::Shader {
            kernel: kernel.name.clone(),
            log,
        })?;
        self.tally.count(|counters| counters.glsl_compiled += 1);
        let bytes: Vec<u8> = spirv.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.disk.store(&file, &bytes);
        Ok(spirv)
    }

    /// Writes the driver's cache to disk, together with what other processes wrote meanwhile.
    pub fn save(&self) {
        if !self.unsaved.swap(false, Ordering::Relaxed) {
            return;
        }
        let file = driver_file(&self.info);
        if let Some(data) = self.disk.load(&file) {
            self.backend.merge_pipeline_cache(&data);
        }
        let data = self.backend.pipeline_cache_data();
        if !data.is_empty() {
            self.disk.store(&file, &data);
        }
    }

    /// Destroys all pipelines that nobody else holds. Nothing may run any more.
    pub fn close(&self) {
        self.save();
        self.made.lock().unwrap_or_else(|broken| broken.into_inner()).clear();
    }

    /// What went wrong with the cache.
    pub fn warnings(&self) -> Vec<String> {
        self.disk.warnings()
    }
}

/// A file's content as SPIR-V; `None` if it is something else.
fn words_of_spirv(bytes: &[u8]) -> Option<Vec<u32>> {
    // Of the header: magic number, version, generator, bound, schema (SPIR-V specification, 2.3).
    const MAGIC: u32 = 0x0723_0203;
    const HEADER: usize = 5;
    let (words, []) = bytes.as_chunks::<4>() else {
        return None;
    };
    let spirv: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    (spirv.len() > HEADER && spirv[0] == MAGIC).then_some(spirv)
}

fn spirv_file(kernel: &Kernel) -> String {
    let identity = kernel.source.identity().to_le_bytes();
    let mut parts: Vec<&[u8]> = vec![glsl::COMPILER.as_bytes(), &identity];
    for (name, value) in &kernel.defines {
        parts.extend([name.as_bytes(), value.as_bytes()]);
    }
    format!("{:032x}.spv", hash(&parts))
}

fn driver_file(info: &DeviceInfo) -> String {
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
    fn what_is_no_spirv_is_compiled_anew() {
        let spirv = glsl::compile("#version 460\nvoid main() {}\n", &[]).unwrap();
        let bytes: Vec<u8> = spirv.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(words_of_spirv(&bytes), Some(spirv));
        for other in [&[][..], &[0; 64], &bytes[..bytes.len() - 1], &bytes[..20]] {
            assert_eq!(words_of_spirv(other), None, "{} bytes", other.len());
        }
    }
}
