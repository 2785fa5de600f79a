//! The Vulkan runtime: devices, memory by class, queues, pipelines and command lists.
//!
//! This crate knows bytes, device addresses and kernels; it knows nothing of arrays or models. [`Vulkan`] lists the
//! devices and [`Vulkan::open`] opens one. All other work goes through [`Device`]: allocate [`Buffer`]s of a
//! [`MemoryClass`], upload data, create [`Pipeline`]s from [`Kernel`]s, submit [`CommandList`]s, read results. Kernels
//! reach buffers by device address only: there are no descriptor sets.
//!
//! ```
//! use refrain_vulkan::{Access, Command, CommandList, Device, DeviceInfo, Kernel, MemoryClass};
//!
//! # fn main() -> Result<(), refrain_vulkan::Error> {
//! // A null device computes nothing; `Vulkan::load(..)?.open(..)?` opens a real one.
//! let device = Device::null(DeviceInfo::mock("card"));
//! let words = device.allocate(MemoryClass::State, 4 * 64)?;
//! device.upload(&words, 0, words.bytes(), &mut |_offset, part| part.fill(1))?;
//! let double = device.pipeline(&Kernel {
//!     name: "double".to_owned(),
//!     source: "#version 460
//!         #extension GL_EXT_buffer_reference : require
//!         layout(local_size_x = 64) in;
//!         layout(buffer_reference) buffer Words { uint word[]; };
//!         layout(push_constant) uniform Push { Words words; };
//!         void main() { words.word[gl_GlobalInvocationID.x] *= 2; }"
//!         .into(),
//!     defines: vec![],
//!     constants: vec![],
//!     push_bytes: 8,
//!     subgroup_size: None,
//!     full_subgroups: false,
//! })?;
//! device.submit(CommandList {
//!     name: "double".to_owned(),
//!     commands: vec![Command::Dispatch {
//!         pipeline: double,
//!         groups: [1, 1, 1],
//!         push: words.address().to_le_bytes().to_vec(),
//!     }],
//!     uses: vec![(words.clone(), Access::Write)],
//! })?;
//! let mut result = vec![0; 4 * 64];
//! device.read(&words, 0, &mut result)?; // waits for that list only
//! # Ok(())
//! # }
//! ```

mod access;
mod backend;
mod buffer_uses;
mod cache;
mod choice;
mod class;
mod command;
mod compiler;
mod counters;
mod device;
mod driver;
mod error;
mod feature;
mod free_list;
mod glsl;
mod info;
mod kernel;
mod mapped;
mod memory;
mod memory_types;
mod null;
mod null_event;
mod options;
mod pipeline;
mod queue;
mod queues;
mod recording;
mod recording_uses;
pub mod speed;
mod staging;

pub use access::Access;
pub use choice::{DeviceChoice, RankedDevice, choose, rank};
pub use class::MemoryClass;
pub use command::{Command, CommandList};
pub use compiler::Compiler;
pub use counters::Counters;
pub use device::{Device, Submission};
pub use driver::{LoaderVersion, Options, Vulkan};
pub use error::{Error, human_bytes};
pub use feature::{Feature, FeatureSet, UnknownFeature};
pub use glsl::{COMPILER as GLSL_COMPILER, ShaderSource};
pub use info::{DeviceInfo, DeviceKind, Heap, Limits, MatrixShape, MemoryType};
pub use kernel::{Kernel, Statistic};
pub use memory::Buffer;
pub use null::{Fault, KernelStub, NullMemory, NullOptions};
pub use null_event::{NullEvent, RecordedCommand};
pub use options::OpenOptions;
pub use pipeline::Pipeline;
pub use queue::Queue;
pub use recording::Recording;
