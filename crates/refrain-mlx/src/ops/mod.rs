//! MLX's functions under MLX's names; names that Rust reserves end in `_`.
//!
//! Arguments are checked at once. Axes may be negative; `None` means all axes, or the flattened array.

mod approximations;
mod binary;
mod comparison;
mod composed;
mod convolution;
mod create;
mod embedding;
mod experts;
mod integer;
mod join;
mod linear;
mod low_precision;
mod matrix;
mod quantised;
mod reduce;
mod scan;
mod shape;
mod sort;
mod unary;
mod update;

pub use binary::{
    add, arctan2, bitwise_and, bitwise_or, bitwise_xor, clip, divide, floor_divide, left_shift, logaddexp, logical_and,
    logical_or, maximum, minimum, multiply, power, remainder, right_shift, subtract, where_,
};
pub use comparison::{
    allclose, array_equal, equal, greater, greater_equal, isclose, less, less_equal, nan_to_num, not_equal,
};
pub(crate) use composed::composed;
pub use convolution::{conv_general, conv1d};
pub use create::{arange, eye, full, linspace, ones, tri, zeros};
pub use embedding::quantized_rows;
pub use experts::gather_mm;
pub use join::{Padding, Sections, concatenate, meshgrid, pad, repeat, split, stack, tile};
pub use linear::{addmm, einsum, inner, kron, matmul, outer, tensordot};
pub use low_precision::{from_fp8, hadamard_transform, to_fp8};
pub use matrix::{diag, diagonal, trace, tril, triu};
pub use quantised::{dequantize, gather_qmm, quantize, quantized_matmul};
pub use reduce::{all, any, argmax, argmin, logsumexp, max, mean, median, min, prod, softmax, std, sum, var};
pub use scan::{cummax, cummin, cumprod, cumsum, logcumsumexp};
pub(crate) use shape::reversed;
pub use shape::{
    as_strided, broadcast_arrays, broadcast_shapes, broadcast_to, contiguous, expand_dims, flatten, flip, moveaxis,
    reshape, roll, squeeze, swapaxes, transpose, unflatten, view,
};
pub use sort::{argpartition, argsort, partition, searchsorted, sort, topk};
pub use unary::{
    abs, arccos, arccosh, arcsin, arcsinh, arctan, arctanh, astype, bitwise_invert, ceil, cos, cosh, degrees, erf,
    erfinv, exp, expm1, floor, isfinite, isinf, isnan, isneginf, isposinf, log, log1p, log2, log10, logical_not,
    negative, radians, reciprocal, round, rsqrt, sigmoid, sign, sin, sinh, sqrt, square, stop_gradient, tan, tanh,
    trunc,
};
pub(crate) use update::{scattered, wrapped};

pub use update::{put_along_axis, slice, slice_update, take, take_along_axis};
