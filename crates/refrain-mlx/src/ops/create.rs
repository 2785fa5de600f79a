//! New values.

use refrain::Array;

use crate::device::compute_device;
use crate::shape::extents;
use crate::{DType, Error, Number, Operand, Result, Value};

/// A value of zeros.
///
/// # Errors
/// Fails if an extent is negative, or if the dtype is not supported.
pub fn zeros(shape: &[i64], dtype: DType) -> Result<Value> {
    Value::full(&extents("zeros", shape)?, Number::Int(0), dtype)
}

/// A value of ones.
///
/// # Errors
/// As [`zeros`].
pub fn ones(shape: &[i64], dtype: DType) -> Result<Value> {
    Value::full(&extents("ones", shape)?, Number::Int(1), dtype)
}

/// A value whose elements are those of `value`, broadcast.
///
/// # Errors
/// As [`zeros`]; also fails if `value` does not broadcast to the shape.
pub fn full(shape: &[i64], value: &Operand, dtype: Option<DType>) -> Result<Value> {
    let shape = extents("full", shape)?;
    match value {
        Operand::Number(number) => Value::full(&shape, *number, dtype.unwrap_or(number.dtype())),
        Operand::Value(value) | Operand::Adapting(value) => {
            let value = value.cast(dtype.unwrap_or(value.dtype()))?;
            value.like(value.array().broadcast_to(&shape))
        }
    }
}

/// Maximum number of elements of [`arange`].
const MAX_RANGE: f64 = i32::MAX as f64;

/// `start`, `start + step`, … before `stop`. Without a dtype: float32 if a number is a float, else int32.
///
/// # Errors
/// Fails for step 0 and NaN, if there are too many elements, or if the dtype is not supported.
pub fn arange(start: Number, stop: Number, step: Number, dtype: Option<DType>) -> Result<Value> {
    let numbers = [start, stop, step];
    let is_float = numbers.iter().any(|number| matches!(number, Number::Float(_)));
    let dtype = dtype.unwrap_or(if is_float { DType::F32 } else { DType::I32 });
    let [first, last, by] = numbers.map(Number::to_f64);
    if first.is_nan() || last.is_nan() || by.is_nan() {
        return Err(Error::value("[arange] Cannot compute length."));
    }
    // An infinite step reaches the first number alone.
    let ratio = (last - first) / by;
    let count = if by.is_infinite() && ratio >= 0.0 && first != last && (last > first) == (by > 0.0) {
        1.0
    } else {
        ratio.ceil().max(0.0)
    };
    if ratio.is_nan() {
        return Err(Error::value("[arange] Cannot compute length."));
    }
    if count > MAX_RANGE {
        return Err(Error::value("[arange] Maximum size exceeded."));
    }
    if dtype == DType::Bool {
        return Err(Error::value("[arange] bool_ dtype not supported."));
    }
    let (device, n) = (compute_device(), count as usize);
    if dtype.is_floating() {
        let index = Array::arange(&device, refrain::DType::F32, n);
        let scaled = if n > 1 { index * by as f32 } else { index };
        return Value::of(scaled + first as f32)?.cast(dtype);
    }
    let index = Array::arange(&device, refrain::DType::I32, n);
    let by = if is_float { Number::Int(by as i64) } else { step };
    let scaled = if n < 2 || by == Number::Int(1) {
        index
    } else {
        index * by.in_dtype(DType::I32)
    };
    let shifted = if first == 0.0 {
        scaled
    } else {
        scaled + start.in_dtype_truncated(DType::I32)
    };
    Value::of(shifted)?.cast(dtype)
}

/// `num` numbers from `start` to `stop`, both included if `endpoint`.
///
/// # Errors
/// Fails if `num` is negative, or if the dtype is not supported.
pub fn linspace(start: f64, stop: f64, num: i64, endpoint: bool, dtype: DType) -> Result<Value> {
    let Ok(n) = usize::try_from(num) else {
        let message = format!("[linspace] number of samples, {num}, must be non-negative.");
        return Err(Error::value(message));
    };
    let device = compute_device();
    let intervals = if endpoint { n.saturating_sub(1) } else { n };
    let t = Array::arange(&device, refrain::DType::F32, n) / intervals.max(1) as f32;
    let x = (1.0 - &t) * start as f32 + t * stop as f32;
    Value::of(x)?.cast(dtype)
}

/// Ones on and below diagonal `k`, zeros above.
///
/// # Errors
/// As [`zeros`].
pub fn tri(n: i64, m: i64, k: i64, dtype: DType) -> Result<Value> {
    band("tri", [n, m], k, dtype, |column, row| column.le(row))
}

/// Ones on diagonal `k`, zeros elsewhere.
///
/// # Errors
/// As [`zeros`].
pub fn eye(n: i64, m: i64, k: i64, dtype: DType) -> Result<Value> {
    band("eye", [n, m], k, dtype, |column, row| column.eq(row))
}

/// Where a comparison of column with row + `k` holds.
fn band(op: &str, shape: [i64; 2], k: i64, dtype: DType, compare: impl Fn(&Array, &Array) -> Array) -> Result<Value> {
    let shape = extents(op, &shape)?;
    let device = compute_device();
    let index = |n: usize| Array::arange(&device, refrain::DType::I32, n);
    let row = index(shape[0]).reshape(&[-1, 1]) + k;
    Value::of(compare(&index(shape[1]), &row))?.cast(dtype)
}
