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
//! # Arrays
//!
//! An [`Array`] is made from elements ([`Array::from_slice`], [`Array::full`], [`Array::arange`], [`random`]) or by an
//! operation on others:
//!
//! | | |
//! |---|---|
//! | element by element | `+ - * / %`, [`pow`](Array::pow), [`maximum`](Array::maximum), comparisons ([`lt`](Array::lt) …), bits ([`bit_and`](Array::bit_and) …), [`exp`](Array::exp) … [`silu`](Array::silu), [`select`](Array::select) (NumPy's `where`), [`astype`](Array::astype) |
//! | many to one | [`sum`](Array::sum), [`mean`](Array::mean), [`max`](Array::max) …, [`argmax`](Array::argmax), [`top_k`](Array::top_k), [`top_k_with_values`](Array::top_k_with_values), [`softmax`](Array::softmax), [`logsumexp`](Array::logsumexp); [`Axes::keepdims`] |
//! | in order | [`sort`](Array::sort) |
//! | of one's own | [`operation::Operation`], [`Array::apply`] |
//! | products | [`matmul`](Array::matmul), [`Quantised::matmul`] |
//! | seen differently | [`reshape`](Array::reshape), [`permute`](Array::permute), [`slice`](Array::slice), [`split`](Array::split), [`broadcast_to`](Array::broadcast_to), [`expand_dims`](Array::expand_dims) … |
//! | by index | [`take`](Array::take), [`take_along`](Array::take_along), [`Quantised::take`] |
//! | joined | [`concatenate`], [`stack`], [`pad`](Array::pad) |
//! | networks | [`fast::rms_norm`], [`fast::scaled_dot_product_attention`] |
//! | states | [`Array::state`], [`Array::write_rows`] |
//! | layers | [`nn::Linear`], [`nn::RmsNorm`] |
//! | files | [`load_safetensors`], [`save_safetensors`] |
//!
//! Shapes broadcast as NumPy's do, and negative axes count from the last. Numbers stand beside arrays in
//! every operation of two: `&x + 1`, `x.pow(2.0)`, `mask.select(&x, 0)`. Arrays print with `{}`. Operations build a graph and
//! compute nothing; reading ([`Array::to_vec`]) or [`Array::eval`] does, one plan and one submit for all
//! that is needed. Computing in f32, i32 or u32 and rounding to the dtype at each operation gives the same
//! results whatever is joined into one kernel.
//!
//! # Mistakes
//!
//! Operations do not fail on the spot and never panic: one on shapes that do not fit gives an invalid
//! array, and the [`Error`], with the place in the source that made it, comes from the evaluation.
//!
//! ```
//! # use refrain::{Array, DType, Device};
//! let x = Array::ones(&Device::cpu(), DType::F32, &[2, 3]);
//! let error = x.matmul(&x).softmax().to_vec::<f32>().unwrap_err();
//! assert!(error.to_string().contains("3 columns meet 2 rows"));
//! ```
//!
//! # States and functions
//!
//! A state is memory that updates change in place, and arrays name its versions. A [`Function`] is a
//! program traced once, with placeholders for what changes from call to call:
//!
//! ```
//! # use refrain::{Array, DType, Device, Function};
//! let device = Device::cpu();
//! let total = Array::state(&device, DType::F32, &[1, 2])?;
//! let x = Array::input(&device, "x", DType::F32, &[1, 2]);
//! let first = Array::zeros(&device, DType::I32, &[1]);
//! let step = Function::trace(&[&total.write_rows(&(&total + &x), &first)])?;
//! for x in [[1.0f32, 2.0], [10.0, 20.0]] {
//!     step.call(&[("x", &Array::from_slice(&device, &x, &[1, 2]))])?;
//! }
//! assert_eq!(total.to_vec::<f32>()?, [11.0, 22.0]);
//! # Ok::<(), refrain::Error>(())
//! ```
//!
//! # Devices
//!
//! [`Device::auto`] opens the best Vulkan device; [`Device::cpu`] computes in f32 and is what results are
//! checked against. The runtime below opens a device of choice, with options:
//!
//! ```no_run
//! use refrain::Device;
//! use refrain_vulkan::{Choice, OpenOptions, Options, Vulkan};
//!
//! let vulkan = Vulkan::load(Options::default())?;
//! let index = vulkan.choose(&Choice::Auto)?;
//! let device = Device::vulkan(vulkan.open(index, &OpenOptions::default())?);
//! # Ok::<(), refrain_vulkan::Error>(())
//! ```
//!
//! What a device cannot compute is an error that names operation, dtype and device; nothing falls back to
//! the host.
//!
//! # From arrays to a plan
//!
//! [`graph::Graph::trace`] collects the program, the small [`passes`] make it a [`plan::Plan`], and an
//! [`execute::Executable`] runs that; each can be printed.
//!
//! # What a device is worth
//!
//! [`self_test::run`] compares every kernel family with its reference, [`speed::read_bandwidth`] measures what
//! bounds decoding, and [`Device::free_memory`] says what room there is.

mod array;
pub mod check;
mod claims;
mod device;
mod display;
mod element;
mod error;
mod evaluate;
pub mod execute;
mod function;
pub mod graph;
pub mod nn;
pub mod operation;
mod ops;
pub mod passes;
pub mod plan;
mod primitive;
mod program;
pub mod rewrite;
mod safetensors;
pub mod self_test;
mod signature;
pub mod speed;
mod storage;
mod written;

pub use self::safetensors::{load_safetensors, save_safetensors};
pub use array::Array;
pub use device::{Device, Flushes};
pub use element::Element;
pub use error::Error;
pub use evaluate::eval;
pub use execute::{Difference, Eager, Executor, MOST_WORDS, Prepared, Reference, Replay, Run, Tape, Write};
pub use function::Function;
pub use ops::fast;
pub use ops::join::{concatenate, stack};
pub use ops::number::{Number, Term};
pub use ops::quantised::Quantised;
pub use ops::random;
pub use ops::reduce::Axes;
pub use passes::LowerOptions;
pub use primitive::Primitive;
pub use program::{Bindings, ProgramCounts};
pub use refrain_kernels::{DType, Dimensions, Layout, quantised::QuantFormat};
pub use refrain_vulkan::{Counters, DeviceInfo, MemoryClass};
pub use storage::Storage;
