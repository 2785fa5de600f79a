//! Lazy n-dimensional arrays on any Vulkan GPU.
//!
//! Refrain works like NumPy or MLX: operations on [`Array`]s build a graph, and reading an array evaluates it.
//! The graph is lowered to a [plan](plan::Plan) of GPU dispatches, which is cached and can be recorded once and
//! replayed many times. The crate knows nothing of language models; `refrain-lm` and `refrain-models` build on it.
//!
//! ```
//! use refrain::{Array, Device};
//!
//! # fn main() -> Result<(), refrain::Error> {
//! // `Device::auto()?` opens the best GPU; the CPU executor needs no driver.
//! let device = Device::cpu();
//! let x = Array::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
//! let w = Array::from_slice(&device, &[1.0f32, 0.0, 0.0, 2.0], &[2, 2]);
//!
//! // Nothing runs yet: these lines only build a graph.
//! let y = (x.matmul(&w) + 1).maximum(3.0).sum(&[1]);
//!
//! // Reading compiles the graph, submits it once and waits for the result.
//! assert_eq!(y.to_vec::<f32>()?, [8.0, 13.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Arrays
//!
//! Arrays are created from elements ([`Array::from_slice`], [`Array::full`], [`Array::arange`], [`random`]), loaded
//! from files ([`load_safetensors`]), or computed from other arrays:
//!
//! | | |
//! |---|---|
//! | elementwise | `+ - * / %`, [`pow`](Array::pow), [`maximum`](Array::maximum), comparisons ([`lt`](Array::lt) …),
//! bits ([`bit_and`](Array::bit_and) …), [`exp`](Array::exp) … [`silu`](Array::silu), [`select`](Array::select)
//! (NumPy's `where`), [`astype`](Array::astype) |
//! | reductions | [`sum`](Array::sum), [`mean`](Array::mean), [`max`](Array::max) …, [`argmax`](Array::argmax),
//! [`top_k`](Array::top_k), [`top_k_with_values`](Array::top_k_with_values), [`softmax`](Array::softmax),
//! [`logsumexp`](Array::logsumexp); [`Axes::keepdims`] |
//! | sorting | [`sort`](Array::sort) |
//! | matrix products | [`matmul`](Array::matmul), [`Quantised::matmul`] |
//! | views | [`reshape`](Array::reshape), [`permute`](Array::permute), [`slice`](Array::slice),
//! [`split`](Array::split), [`broadcast_to`](Array::broadcast_to), [`expand_dims`](Array::expand_dims) … |
//! | indexing | [`take`](Array::take), [`take_along`](Array::take_along), [`Quantised::take`] |
//! | joining | [`concatenate`], [`stack`], [`pad`](Array::pad) |
//! | neural networks | [`fast::rms_norm`], [`fast::scaled_dot_product_attention`], [`nn::Linear`], [`nn::RmsNorm`] |
//! | states updated in place | [`Array::state`], [`Array::write_rows`] |
//! | files | [`load_safetensors`], [`save_safetensors`] |
//! | custom operations | [`operation::Operation`], [`Array::apply`] |
//!
//! - Shapes broadcast as in NumPy, and negative axes count from the last.
//! - Every operation of two operands accepts numbers: `&x + 1`, `x.pow(2.0)`, `mask.select(&x, 0)`.
//! - Arrays print with `{}`.
//! - [`Array::to_vec`], [`Array::eval`] and [`eval`] compute everything that the arrays need by one plan and one
//!   submit.
//! - Each operation computes in f32, i32 or u32 and rounds its result to its dtype. Kernel fusion therefore never
//!   changes a result.
//!
//! # Errors
//!
//! Operations never panic and return no `Result`. An operation on shapes that do not fit returns an invalid array;
//! evaluation then returns the [`Error`] with the source line that caused it.
//!
//! ```
//! # use refrain::{Array, DType, Device};
//! let x = Array::ones(&Device::cpu(), DType::F32, &[2, 3]);
//! let error = x.matmul(&x).softmax().to_vec::<f32>().unwrap_err();
//! assert!(error.to_string().contains("inner dimensions differ: 3 and 2"));
//! ```
//!
//! # States and functions
//!
//! A state is memory that operations update in place; each update returns an array that names the new version. A
//! [`Function`] is a program traced once. Its placeholders ([`Array::input`]) take new values at each call:
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
//! A [`Tape`] is a function without arguments, prepared for an [`Executor`]. [`Replay`] records its commands once and
//! submits them many times: this is how tokens are decoded.
//!
//! # Devices
//!
//! [`Device::auto`] opens the best Vulkan device. [`Device::cpu`] computes in f32; results are checked against it.
//! `refrain_vulkan` opens a particular device, or one with other options:
//!
//! ```no_run
//! use refrain::Device;
//! use refrain_vulkan::{DeviceChoice, OpenOptions, Options, Vulkan};
//!
//! let vulkan = Vulkan::load(Options::default())?;
//! let index = vulkan.choose(&DeviceChoice::Auto)?;
//! let device = Device::vulkan(vulkan.open(index, &OpenOptions::default())?);
//! # Ok::<(), refrain_vulkan::Error>(())
//! ```
//!
//! A computation that the device does not support is an error that names the operation, the dtype and the device.
//! Nothing falls back to the CPU.
//!
//! # From arrays to a plan
//!
//! [`graph::Graph::trace`] collects the operations that some arrays need. The [`passes`] lower that graph to a
//! [`plan::Plan`], which an [`execute::Executable`] runs. Graphs and plans print with `{}`. [`check`] verifies a plan:
//! that no two dispatches race and none accesses memory out of bounds.
//!
//! # Testing and measuring a device
//!
//! [`self_test::run`] compares every kernel family with its reference. [`speed::read_bandwidth`] measures the memory
//! bandwidth, which bounds decoding. [`Device::free_memory`] returns the memory that is left.

mod array;
pub mod check;
mod composite;
mod device;
mod display;
mod element;
mod error;
mod evaluate;
pub mod execute;
mod explain;
mod function;
pub mod graph;
mod in_place;
mod integers;
mod locks;
mod lookup;
pub mod nn;
pub mod operation;
mod ops;
pub mod passes;
pub mod plan;
mod primitive;
mod program;
pub mod rewrite;
mod rotation;
mod safetensors;
pub mod self_test;
mod signature;
pub mod speed;
mod storage;
mod subgraph;
mod traced_graph;

pub use self::safetensors::{
    StoredTensor, load_safetensors, load_safetensors_with, save_safetensors, save_safetensors_with,
};
pub use array::Array;
pub use composite::Composite;
pub use device::{Device, Flushes};
pub use element::Element;
pub use error::Error;
pub use evaluate::{eval, eval_referenced};
pub use execute::{
    Difference, Eager, Executor, MAX_INBOX_WORDS, Prepared, Reference, Replay, Run, SharedScratch, Tape, Write,
};
pub use function::Function;
pub use ops::fast;
pub use ops::join::{concatenate, stack};
pub use ops::number::{ArrayOrNumber, Number};
pub use ops::quantised::Quantised;
pub use ops::random;
pub use ops::reduce::Axes;
pub use passes::LowerOptions;
pub use primitive::{Primitive, SliceBounds};
pub use program::ProgramCounts;
pub use refrain_kernels::combine_rows::Combine;
pub use refrain_kernels::{DType, Dimensions, Layout, quantised::QuantFormat};
pub use refrain_vulkan::{Counters, DeviceInfo, MemoryClass};
pub use storage::{Bindings, Storage};
pub use subgraph::Subgraph;
