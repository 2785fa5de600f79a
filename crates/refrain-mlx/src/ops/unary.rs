//! Functions of one operand.

use std::f32::consts::{LN_2, LN_10, PI};

use refrain::Array;

use super::approximations;
use super::composed::composed;
use crate::dtype::Category;
use crate::{DType, Error, Operand, Result, Value};

/// Applies a core function that keeps floats' dtypes and makes floats of integers.
fn floating(a: &Operand, function: impl Fn(&Array) -> Array) -> Result<Value> {
    let a = a.value()?;
    Value::of(function(a.cast(a.dtype().at_least_float())?.array()))
}

/// Applies a function of several steps in f32; the result has the float's dtype.
fn in_f32(name: &'static str, a: &Operand, function: fn(&[Array]) -> Array) -> Result<Value> {
    let a = a.value()?;
    let dtype = a.dtype().at_least_float().stored()?;
    Value::of(composed(name, function, &[a.array()], a.shape(), dtype))
}

/// Functions of several steps in f32.
macro_rules! functions_in_f32 {
    ($($(#[$doc:meta])* $name:ident($function:expr);)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Fails if the dtype is not supported.
        pub fn $name(a: &Operand) -> Result<Value> {
            fn steps(inputs: &[Array]) -> Array {
                let function: fn(&Array) -> Array = $function;
                function(&inputs[0].astype(refrain::DType::F32))
            }
            in_f32(stringify!($name), a, steps)
        }
    )* };
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($by:ident, $function:expr);)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Fails if the dtype is not supported.
        pub fn $name(a: &Operand) -> Result<Value> {
            $by(a, $function)
        }
    )* };
}

functions! {
    /// eˣ.
    exp(floating, Array::exp);
    /// Natural logarithm.
    log(floating, Array::log);
    /// Square root.
    sqrt(floating, Array::sqrt);
    /// 1 / √x.
    rsqrt(floating, Array::rsqrt);
    /// 1 / x.
    reciprocal(floating, |x| 1.0 / x);
    /// Sine.
    sin(floating, Array::sin);
    /// Cosine.
    cos(floating, Array::cos);
    /// Hyperbolic tangent.
    tanh(floating, Array::tanh);
    /// Gauss's error function.
    erf(floating, Array::erf);
    /// Radians to degrees.
    degrees(floating, |x| x * (180.0 / PI));
    /// Degrees to radians.
    radians(floating, |x| x * (PI / 180.0));
}

functions_in_f32! {
    /// eˣ − 1, exact near 0.
    expm1(approximations::expm1);
    /// ln(1 + x), exact near 0.
    log1p(approximations::log1p);
    /// Logarithm to base 2.
    log2(|x| x.log() / LN_2);
    /// Logarithm to base 10.
    log10(|x| x.log() / LN_10);
    /// Tangent.
    tan(|x| x.sin() / x.cos());
    /// Hyperbolic sine.
    sinh(approximations::sinh);
    /// Hyperbolic cosine.
    cosh(approximations::cosh);
    /// Inverse sine.
    arcsin(approximations::arcsin);
    /// Inverse cosine.
    arccos(approximations::arccos);
    /// Inverse tangent.
    arctan(approximations::arctan);
    /// Inverse hyperbolic sine.
    arcsinh(approximations::arcsinh);
    /// Inverse hyperbolic cosine.
    arccosh(approximations::arccosh);
    /// Inverse hyperbolic tangent.
    arctanh(approximations::arctanh);
    /// Inverse of [`erf`].
    erfinv(approximations::erfinv);
}

/// 1 / (1 + e⁻ˣ).
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn sigmoid(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    let a = a.cast(a.dtype().at_least_float())?;
    let steps = |inputs: &[Array]| approximations::sigmoid(&inputs[0]);
    Value::of(composed("sigmoid", steps, &[a.array()], a.shape(), a.stored()))
}

/// Applies a function to floats; other dtypes are returned as they are.
fn of_floats(a: &Operand, function: impl Fn(&Array) -> Array) -> Result<Value> {
    let a = a.value()?;
    if a.dtype().category() < Category::Floating {
        return Ok(a);
    }
    Value::of(function(a.array()))
}

functions! {
    /// Largest integer not above; integers are unchanged.
    floor(of_floats, Array::floor);
    /// Smallest integer not below; integers are unchanged.
    ceil(of_floats, Array::ceil);
    /// The integer part; integers are unchanged.
    trunc(of_floats, |x| x.lt(0.0).select(x.ceil(), x.floor()));
}

/// Whether a property of floats holds; `false` for other dtypes.
fn float_property(a: &Operand, property: impl Fn(&Array) -> Array) -> Result<Value> {
    let a = a.value()?;
    if a.dtype().category() < Category::Floating {
        return Value::full(a.shape(), false.into(), DType::Bool);
    }
    Value::of(property(a.array()))
}

functions! {
    /// Whether each element is NaN.
    isnan(float_property, |x| x.ne(x));
    /// Whether each element is infinite.
    isinf(float_property, |x| x.abs().eq(f32::INFINITY));
    /// Whether each element is ∞.
    isposinf(float_property, |x| x.eq(f32::INFINITY));
    /// Whether each element is −∞.
    isneginf(float_property, |x| x.eq(f32::NEG_INFINITY));
}

/// Whether each element is neither infinite nor NaN.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn isfinite(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    if a.dtype().category() < Category::Floating {
        return Value::full(a.shape(), true.into(), DType::Bool);
    }
    Value::of(a.array().abs().lt(f32::INFINITY))
}

/// |x|.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn abs(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    match a.dtype().category() {
        Category::Bool | Category::Unsigned => Ok(a),
        _ => a.arithmetic(a.array().abs()),
    }
}

/// −1, 0 or 1.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn sign(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    match a.dtype() {
        DType::Bool => Ok(a),
        dtype => Value::of(a.array().sign())?.cast(dtype),
    }
}

/// −x.
///
/// # Errors
/// Fails for bool.
pub fn negative(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    if a.dtype() == DType::Bool {
        let message = "[negative] Not supported for bool, use logical_not instead.";
        return Err(Error::value(message));
    }
    a.arithmetic(-a.array())
}

/// x².
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn square(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    match a.dtype() {
        DType::Bool => Ok(a),
        _ => a.arithmetic(a.array() * a.array()),
    }
}

/// Whether each element is zero.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn logical_not(a: &Operand) -> Result<Value> {
    Value::of(a.value()?.array().logical_not())
}

/// All bits inverted; logical for bool.
///
/// # Errors
/// Fails for floats.
pub fn bitwise_invert(a: &Operand) -> Result<Value> {
    let a = a.value()?;
    match a.dtype() {
        DType::Bool => logical_not(&a.into()),
        dtype if dtype.is_integer() => a.arithmetic(a.array().bit_xor(super::integer::all_ones(dtype))),
        dtype => Err(Error::value(format!(
            "[bitwise_invert] Bitwise inversion only allowed on integer types, not {dtype}."
        ))),
    }
}

/// Rounded to `decimals` places, ties to even.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn round(a: &Operand, decimals: i64) -> Result<Value> {
    let a = a.value()?;
    let is_float = a.dtype().category() >= Category::Floating;
    if !is_float && decimals >= 0 {
        return Ok(a);
    }
    let round = |x: &Array| {
        if decimals == 0 {
            return x.round();
        }
        let scale = 10f32.powi(decimals.unsigned_abs().min(38) as i32);
        if decimals > 0 {
            (x * scale).round() / scale
        } else {
            (x / scale).round() * scale
        }
    };
    Value::of(round(a.cast(a.dtype().at_least_float())?.array()))?.cast(a.dtype())
}

/// Converted to another dtype.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn astype(a: &Value, dtype: DType) -> Result<Value> {
    a.cast(dtype)
}

/// The value itself: gradients do not flow through it.
pub fn stop_gradient(a: &Value) -> Value {
    a.clone()
}
