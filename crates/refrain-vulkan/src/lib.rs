//! The Vulkan runtime: devices, memory by class, queues, pipelines and command lists.
//!
//! It knows bytes, addresses and kernels, and nothing of arrays or models. [`Vulkan`] finds the
//! devices, [`Vulkan::open`] opens one, and everything else is done through [`Device`]: allocate
//! [`Buffer`]s of a [`MemoryClass`], upload to them, make [`Pipeline`]s of [`Kernel`]s, submit
//! [`CommandList`]s, read results. Buffers are reached by device address alone: there are no
//! descriptor sets.

mod backend;
mod cache;
mod choice;
mod class;
mod command;
mod counters;
mod device;
mod driver;
mod error;
mod feature;
mod glsl;
mod info;
mod mapped;
mod memory;
mod null;
mod pipeline;
mod queues;
mod ranges;
mod staging;

pub use backend::Queue;
pub use choice::{Choice, Ranked, choose, rank};
pub use class::MemoryClass;
pub use command::{Access, Command, CommandList};
pub use counters::Counters;
pub use device::{Device, OpenOptions, Submission};
pub use driver::{Options, Vulkan};
pub use error::{Error, human_bytes};
pub use feature::{Feature, FeatureSet, UnknownFeature};
pub use info::{DeviceInfo, DeviceKind, Heap, Limits, MatrixShape, MemoryType};
pub use memory::Buffer;
pub use null::{Recorded, RecordedCommand};
pub use pipeline::{Kernel, Pipeline};
