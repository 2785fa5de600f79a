//! Elementwise chains: an expression in single-assignment form, compiled to one kernel.
//!
//! An [`Expression`] computes one output element from the input elements at the same index. Casts, fills, ranges and
//! strided copies are expressions too. Every step is computed in the compute type of its dtype
//! ([`crate::DType::compute`]) and rounded to that dtype, so that fusing expressions never changes a result. Inputs are
//! broadcast (stride 0) to the output's shape. The output may have any strides, for example those of one part of a
//! concatenation.
//!
//! Semantics, the same on the device and in [`reference()`]:
//! - integers wrap; division and remainder by zero give 0; shift counts are taken modulo 32;
//! - remainders have the dividend's sign (as in Rust), for floats exactly;
//! - comparisons and `Not` give `Bool`; `Max` and `Min` give NaN when either operand is NaN;
//! - `Sign` of 0 is 0, of NaN is NaN; `Round` rounds ties to even;
//! - casts of floats to integers saturate and NaN gives 0; casts to `Bool` give whether the value is not 0;
//! - transcendental functions are within 1e-5 of the reference's, relative (`Sin`, `Cos`, `Tanh`,
//!   `Erf`: 1e-6 absolute); subnormal results of f32 steps may be flushed to 0.

mod call;
mod display;
mod expression;
mod reference;
mod source;

pub use call::{MAX_INPUTS, call};
pub(crate) use call::{constant_bits, libraries};
pub use expression::{BinaryOp, Expression, ExpressionStep, InvalidExpression, Scalar, UnaryOp};
pub use reference::reference;
pub(crate) use source::{evaluate, rounded};
