//! MLX's array semantics over Refrain's arrays, in plain Rust.
//!
//! [`Value`] is a handle of an array, as a program written for MLX holds it: it has no device, it never changes, and
//! what computes it is lazy. [`ops`] has MLX's functions under MLX's names, [`index`] its indexing, [`random`] its random
//! numbers, [`fast`] the operations of `mlx.core.fast`. All of them check their arguments at once and return an
//! [`Error`] whose [`ErrorKind`] says which exception MLX raises.
//!
//! [`eval`] computes values, and with them every value on the way that is still referenced. [`async_eval`] does so on a
//! thread of its own.
//!
//! ```
//! use refrain_mlx::{DType, Operand, Value, ops};
//!
//! let x = Value::from_slice(&[1.0f32, 2.0, 3.0], &[3])?;
//! let y = ops::add(&Operand::from(&x), &Operand::from(1i64))?;
//! assert_eq!(y.dtype(), DType::F32);
//! assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0, 4.0]);
//! # Ok::<(), refrain_mlx::Error>(())
//! ```
//!
//! This crate knows nothing of Python; the module that binds it is another crate.

mod compiled;
mod device;
mod dtype;
mod error;
mod evaluation;
pub mod fast;
pub mod files;
pub mod index;
pub mod linalg;
mod lowering;
pub mod memory;
mod number;
pub mod ops;
mod promotion;
pub mod random;
mod shape;
mod value;

pub use compiled::Compiled;
pub use device::{DeviceKind, compute_device, default_device, set_compute_device, set_default_device};
pub use dtype::{Category, DType};
pub use error::{Error, ErrorKind, Result};
pub use evaluation::{async_eval, eval, finish, finish_submitting, synchronize};
pub use number::{Number, Operand};
pub use promotion::promote;
pub use value::Value;
