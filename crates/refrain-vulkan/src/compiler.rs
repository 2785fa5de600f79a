//! A device's compiler without the device.

use std::sync::Arc;

use crate::backend::Backend;
use crate::cache::DiskCache;
use crate::counters::Tally;
use crate::device::OpenOptions;
use crate::error::Error;
use crate::feature::FeatureSet;
use crate::info::DeviceInfo;
use crate::pipeline::{Kernel, Pipeline, Pipelines};

/// Makes pipelines that nothing runs: for what a driver's compiler makes of kernels, where there need be no memory
/// nor a card, such as the null hardware of Mesa's RADV.
pub struct Compiler(Pipelines);

impl Compiler {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        info: DeviceInfo,
        features: FeatureSet,
        options: &OpenOptions,
    ) -> Compiler {
        let disk = DiskCache::new(options.cache_dir.clone());
        let tally = Arc::new(Tally::default());
        Compiler(Pipelines::new(backend, tally, Arc::new(info), features, disk))
    }

    /// Compiles kernels, in parallel. `progress` hears how many of how many are done, on the calling thread.
    ///
    /// # Errors
    /// A kernel that does not compile, or asks for what the device has not.
    pub fn prepare(&self, kernels: &[Kernel], progress: &dyn Fn(usize, usize)) -> Result<(), Error> {
        self.0.prepare(kernels, progress)
    }

    /// A kernel's pipeline, compiled unless it is there.
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
