//! Functions of two operands, and `where` and `clip`.

use refrain::Array;

use super::{approximations, composed, integer};
use crate::dtype::Category;
use crate::promotion::{promoted, promoted_floats};
use crate::shape::broadcast;
use crate::{DType, Error, ErrorKind, Operand, Result, Value, promote};

/// A function of two arrays of one dtype.
fn binary(a: &Operand, b: &Operand, function: impl Fn(&Array, &Array) -> Array) -> Result<Value> {
    let ([a, b], _) = promoted(a, b)?;
    a.arithmetic(function(a.array(), b.array()))
}

/// A function of an array of floats and a number as one operation: the number is a constant of it. Nothing for other
/// operands.
fn by_number(a: &Operand, b: &Operand, function: impl Fn(&Array, refrain::Number) -> Array) -> Option<Result<Value>> {
    let (Operand::Value(x), Operand::Number(number)) = (a, b) else {
        return None;
    };
    let dtype = x.dtype();
    (dtype.is_native() && dtype.is_floating()).then(|| x.like(function(x.array(), number.in_dtype(dtype))))
}

/// [`by_number`] for a function whose operands may change places.
fn by_either_number(
    a: &Operand,
    b: &Operand,
    function: impl Fn(&Array, refrain::Number) -> Array,
) -> Option<Result<Value>> {
    by_number(a, b, &function).or_else(|| by_number(b, a, &function))
}

/// A function of two arrays of a floating dtype.
fn floating(a: &Operand, b: &Operand, function: impl Fn(&Array, &Array) -> Array) -> Result<Value> {
    let ([a, b], _) = promoted_floats(a, b)?;
    Value::of(function(a.array(), b.array()))
}

/// Functions of several steps and two arrays of f32; the result has the operands' floating dtype.
macro_rules! functions_in_f32 {
    ($($(#[$doc:meta])* $name:ident($function:path);)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// As [`add`].
        pub fn $name(a: &Operand, b: &Operand) -> Result<Value> {
            fn steps(inputs: &[Array]) -> Array {
                let [a, b] = [&inputs[0], &inputs[1]].map(|x| x.astype(refrain::DType::F32));
                $function(&a, &b)
            }
            let ([a, b], dtype) = promoted_floats(a, b)?;
            let shape = broadcast(stringify!($name), &[a.shape(), b.shape()])?;
            let dtype = dtype.stored()?;
            Value::of(composed(stringify!($name), steps, &[a.array(), b.array()], &shape, dtype))
        }
    )* };
}

functions_in_f32! {
    /// ln(eᵃ + eᵇ) without overflow.
    logaddexp(log_add_exp);
    /// The angle of the point (b, a).
    arctan2(approximations::arctan2);
}

/// a + b; logical or for bool.
///
/// # Errors
/// Fails if shapes do not broadcast, or if the promoted dtype is not supported.
pub fn add(a: &Operand, b: &Operand) -> Result<Value> {
    if let Some(sum) = by_either_number(a, b, |x, number| x + number) {
        return sum;
    }
    binary(a, b, |a, b| {
        if a.dtype() == refrain::DType::Bool {
            a.bit_or(b)
        } else {
            a + b
        }
    })
}

/// a − b.
///
/// # Errors
/// As [`add`].
pub fn subtract(a: &Operand, b: &Operand) -> Result<Value> {
    if let Some(difference) = by_number(a, b, |x, number| x - number) {
        return difference;
    }
    binary(a, b, |a, b| {
        if a.dtype() == refrain::DType::Bool {
            a.bit_xor(b)
        } else {
            a - b
        }
    })
}

/// a · b; logical and for bool.
///
/// # Errors
/// As [`add`].
pub fn multiply(a: &Operand, b: &Operand) -> Result<Value> {
    if let Some(product) = by_either_number(a, b, |x, number| x * number) {
        return product;
    }
    binary(a, b, |a, b| {
        if a.dtype() == refrain::DType::Bool {
            a.bit_and(b)
        } else {
            a * b
        }
    })
}

/// a / b; integers give float32.
///
/// # Errors
/// As [`add`].
pub fn divide(a: &Operand, b: &Operand) -> Result<Value> {
    if let Some(quotient) = by_number(a, b, |x, number| x / number) {
        return quotient;
    }
    floating(a, b, |a, b| a / b)
}

/// The quotient rounded down.
///
/// # Errors
/// As [`add`].
pub fn floor_divide(a: &Operand, b: &Operand) -> Result<Value> {
    binary(a, b, |a, b| match a.dtype() {
        refrain::DType::Bool => a.bit_and(b),
        dtype if dtype.is_float() => (a / b).floor(),
        _ => integer::floor_quotient(a, b),
    })
}

/// The remainder, with the divisor's sign.
///
/// # Errors
/// As [`add`].
pub fn remainder(a: &Operand, b: &Operand) -> Result<Value> {
    binary(a, b, |a, b| {
        if a.dtype() == refrain::DType::Bool {
            return a.bit_and(b.logical_not());
        }
        let rest = a % b;
        if matches!(a.dtype(), refrain::DType::U8 | refrain::DType::U32) {
            return rest;
        }
        let wrong_sign = rest.ne(0).bit_and(rest.lt(0).bit_xor(b.lt(0)));
        wrong_sign.select(&(&rest + b), &rest)
    })
}

/// aᵇ; integers stay integers.
///
/// # Errors
/// As [`add`].
pub fn power(a: &Operand, b: &Operand) -> Result<Value> {
    if let Operand::Number(number) = b
        && number.to_f64() == 2.0
        && promote_with(a, b)? == a.value()?.dtype()
    {
        return super::unary::square(a);
    }
    let ([a, b], dtype) = promoted(a, b)?;
    if dtype.is_integer() {
        return integer::power(&a, &b);
    }
    if dtype == DType::Bool {
        return Value::of(a.array().bit_or(b.array().logical_not()));
    }
    Value::of(a.array().pow(b.array()))
}

/// The promoted dtype of operands.
fn promote_with(a: &Operand, b: &Operand) -> Result<DType> {
    Ok(promote(a.value_beside(b)?.dtype(), b.value_beside(a)?.dtype()))
}

/// The larger; NaN if one is NaN.
///
/// # Errors
/// As [`add`].
pub fn maximum(a: &Operand, b: &Operand) -> Result<Value> {
    binary(a, b, |a, b| a.maximum(b))
}

/// The smaller; NaN if one is NaN.
///
/// # Errors
/// As [`add`].
pub fn minimum(a: &Operand, b: &Operand) -> Result<Value> {
    binary(a, b, |a, b| a.minimum(b))
}

/// ln(eᵃ + eᵇ) of f32.
pub(super) fn log_add_exp(a: &Array, b: &Array) -> Array {
    let (larger, smaller) = (a.maximum(b), a.minimum(b));
    let is_extreme = smaller.eq(f32::NEG_INFINITY).bit_or(larger.eq(f32::INFINITY));
    let sum = &larger + &approximations::log1p(&(&smaller - &larger).exp());
    is_extreme.select(&larger, &sum)
}

/// A bitwise function, logical for bool.
fn bitwise(op: &str, a: &Operand, b: &Operand, function: impl Fn(&Array, &Array) -> Array) -> Result<Value> {
    let [x, y] = [a.value_beside(b)?.dtype(), b.value_beside(a)?.dtype()];
    if promote(x, y).category() >= Category::Floating {
        let message = format!("[{op}] Only allowed on integer or boolean types but got types {x} and {y}.");
        return Err(Error::new(ErrorKind::Runtime, message));
    }
    let ([a, b], _) = promoted(a, b)?;
    a.arithmetic(function(a.array(), b.array()))
}

macro_rules! bitwise {
    ($($(#[$doc:meta])* $name:ident($function:ident);)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Fails for floats, and as [`add`].
        pub fn $name(a: &Operand, b: &Operand) -> Result<Value> {
            bitwise(stringify!($name), a, b, |a, b| a.$function(b))
        }
    )* };
}

bitwise! {
    /// Bits set in both.
    bitwise_and(bit_and);
    /// Bits set in either.
    bitwise_or(bit_or);
    /// Bits set in exactly one.
    bitwise_xor(bit_xor);
    /// Bits moved up.
    left_shift(shift_left);
    /// Bits moved down.
    right_shift(shift_right);
}

fn truth(a: &Operand) -> Result<Value> {
    a.value()?.cast(DType::Bool)
}

/// Whether both are nonzero.
///
/// # Errors
/// Fails if shapes do not broadcast.
pub fn logical_and(a: &Operand, b: &Operand) -> Result<Value> {
    Value::of(truth(a)?.array().bit_and(truth(b)?.array()))
}

/// Whether one is nonzero.
///
/// # Errors
/// Fails if shapes do not broadcast.
pub fn logical_or(a: &Operand, b: &Operand) -> Result<Value> {
    Value::of(truth(a)?.array().bit_or(truth(b)?.array()))
}

/// `x` where the condition is nonzero, else `y`.
///
/// # Errors
/// As [`add`].
pub fn where_(condition: &Operand, x: &Operand, y: &Operand) -> Result<Value> {
    let condition = truth(condition)?;
    let ([x, y], _) = promoted(x, y)?;
    x.like(condition.array().select(x.array(), y.array()))
}

/// The elements within the bounds that are given.
///
/// # Errors
/// Fails if no bound is given, and as [`add`].
pub fn clip(a: &Value, min: Option<&Operand>, max: Option<&Operand>) -> Result<Value> {
    if min.is_none() && max.is_none() {
        return Err(Error::value("[clip] At most one of a_min and a_max may be None"));
    }
    let mut clipped = a.clone();
    if let Some(min) = min {
        clipped = maximum(&clipped.into(), min)?;
    }
    match max {
        Some(max) => minimum(&clipped.into(), max),
        None => Ok(clipped),
    }
}
