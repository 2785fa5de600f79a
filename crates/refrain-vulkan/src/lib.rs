//! The Vulkan runtime: devices, memory by class, queues, pipelines and command lists.
//!
//! It knows bytes, addresses and kernels, and nothing of arrays or models. [`Vulkan`] finds the
//! devices, [`Vulkan::open`] opens one, and everything else is done through [`Device`]: allocate
//! [`Buffer`]s of a [`MemoryClass`], upload to them, make [`Pipeline`]s of [`Kernel`]s, submit
//! [`CommandList`]s, read results. Buffers are reached by device address alone: there are no
//! descriptor sets.
//!
//! ```
//! use refrain_vulkan::{Access, Command, CommandList, Device, DeviceInfo, Kernel, MemoryClass};
//!
//! # fn main() -> Result<(), refrain_vulkan::Error> {
//! // A null device computes nothing; `Vulkan::load(..)?.open(..)?` gives one that does.
//! let device = Device::null(DeviceInfo::made_up("card"));
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
//! device.read(&words, 0, &mut result)?; // waits for that list alone
//! # Ok(())
//! # }
//! ```

mod backend;
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
mod glsl;
mod info;
mod mapped;
mod memory;
mod null;
mod pipeline;
mod queues;
mod ranges;
mod recording;
pub mod speed;
mod staging;
mod stamps;

pub use backend::Queue;
pub use choice::{Choice, Ranked, choose, rank};
pub use class::MemoryClass;
pub use command::{Access, Command, CommandList};
pub use compiler::Compiler;
pub use counters::Counters;
pub use device::{Device, OpenOptions, Submission};
pub use driver::{LoaderVersion, Options, Vulkan};
pub use error::{Error, human_bytes};
pub use feature::{Feature, FeatureSet, UnknownFeature};
pub use glsl::{COMPILER as GLSL_COMPILER, ShaderText};
pub use info::{DeviceInfo, DeviceKind, Heap, Limits, MatrixShape, MemoryType};
pub use memory::Buffer;
pub use null::{Fault, NullEvent, NullOptions, RecordedCommand, StandIn, Words};
pub use pipeline::{Kernel, Pipeline, Statistic};
pub use recording::Recording;
