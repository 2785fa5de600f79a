//! The shader compiler of a driver, without a usable device.

use std::sync::Arc;

use crate::backend::Backend;
use crate::cache::DiskCache;
use crate::counters::SharedCounters;
use crate::error::Error;
use crate::feature::FeatureSet;
use crate::info::DeviceInfo;
use crate::kernel::Kernel;
use crate::options::OpenOptions;
use crate::pipeline::{Pipeline, Pipelines};

/// Creates pipelines that are never run, to inspect what a driver compiler makes of kernels. It needs neither device
/// memory nor a GPU, so it works with the null hardware of Mesa RADV.
pub struct Compiler(Pipelines);

impl Compiler {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        info: DeviceInfo,
        features: FeatureSet,
        options: &OpenOptions,
    ) -> Compiler {
        let disk = DiskCache::new(options.cache_dir.clone());
        let counters = Arc::new(SharedCounters::default());
        Compiler(Pipelines::new(backend, counters, Arc::new(info), features, disk))
    }

    /// Compiles kernels in parallel. `progress` is called on this thread with the number done and the total.
    ///
    /// # Errors
    /// Fails if a kernel does not compile or needs what the device lacks.
    pub fn prepare(&self, kernels: &[Kernel], progress: &dyn Fn(usize, usize)) -> Result<(), Error> {
        self.0.prepare(kernels, progress)
    }

    /// Returns the pipeline of a kernel, compiled on first use.
    ///
    /// # Errors
    /// As [`Compiler::prepare`].
    pub fn pipeline(&self, kernel: &Kernel) -> Result<Pipeline, Error> {
        self.0.get(kernel)
    }
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("compiler")
    }
}
