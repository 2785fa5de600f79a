//! Lazy arrays on any Vulkan GPU, and the way from a graph to a plan that devices execute.
//!
//! ```
//! use refrain::{Array, Device};
//!
//! let device = Device::cpu();
//! let x = Array::from_slice(&device, &[1.0f32, 2.0, 3.0], &[3]);
//! let y = (&x * &x + 1.0).sum(&[0]);
//! assert_eq!(y.to_vec::<f32>().unwrap(), [17.0]);
//! ```
//!
//! Operations build a graph and compute nothing. [`Array::eval`] lowers what is needed by the small
//! passes of [`passes`] into a [`plan::Plan`] and gives it to the device's executor. A mistake (shapes
//! that do not fit, say) makes the resulting array invalid; the error, with the place in the source
//! that made it, comes from the evaluation.

mod array;
mod device;
mod element;
mod error;
pub mod execute;
mod function;
pub mod graph;
mod ops;
pub mod passes;
pub mod plan;
mod primitive;
mod storage;

pub use array::{Array, eval};
pub use device::{Device, Flushes};
pub use element::Element;
pub use error::Error;
pub use function::Function;
pub use ops::fast;
pub use ops::join::concatenate;
pub use ops::quantised::Quantised;
pub use primitive::Primitive;
pub use refrain_kernels::{
    DType, Layout, attention::Params as AttentionParams, quantised::QuantFormat, quantised::Zero,
    rope::Params as RopeParams,
};
pub use refrain_vulkan::{Counters, MemoryClass};
pub use storage::Storage;
