//! Numbers as operands of array operations.

use refrain_kernels::elementwise::{Expression, ExpressionStep, Scalar};

use super::CallSite;
use crate::{Array, DType, Device, Primitive};

/// A number, exact until it is converted to a dtype.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// An integer.
    Integer(i128),
    /// A float, which may have an integral value, as `2.0` does.
    Float(f64),
}

impl Number {
    /// Converts the number to `dtype`. Floats are rounded to a float dtype; to an integer dtype they are truncated and
    /// saturate (NaN gives 0). Bool is whether the number is not zero. `None` if an integer is out of `dtype`'s range.
    fn in_dtype(self, dtype: DType) -> Option<Scalar> {
        Some(match (self, dtype) {
            (Number::Integer(n), DType::F32 | DType::F16 | DType::BF16) => Scalar::F32(n as f32),
            (Number::Integer(n), DType::I32) => Scalar::I32(n.try_into().ok()?),
            (Number::Integer(n), DType::U32) => Scalar::U32(n.try_into().ok()?),
            (Number::Integer(n), DType::U8) => Scalar::U32(u8::try_from(n).ok()?.into()),
            (Number::Integer(n), DType::Bool) => Scalar::U32((n != 0).into()),
            (Number::Float(x), DType::F32 | DType::F16 | DType::BF16) => Scalar::F32(x as f32),
            (Number::Float(x), DType::I32) => Scalar::I32(x as i32),
            (Number::Float(x), DType::U32) => Scalar::U32(x as u32),
            (Number::Float(x), DType::U8) => Scalar::U32((x as u8).into()),
            (Number::Float(x), DType::Bool) => Scalar::U32((x != 0.0).into()),
        })
    }

    /// The value, if it is integral.
    fn integral(self) -> Option<i128> {
        match self {
            Number::Integer(n) => Some(n),
            // No integer dtype holds more.
            Number::Float(x) if x.fract() == 0.0 && x.abs() < 9.0e18 => Some(x as i128),
            Number::Float(_) => None,
        }
    }

    /// The dtype of this number as an operand of an operation with an array of `dtype`: `dtype` if it can hold the
    /// number, else the narrowest dtype that can hold both.
    fn dtype_with(self, dtype: DType) -> DType {
        let fits = |range: std::ops::RangeInclusive<i64>| {
            let range = i128::from(*range.start())..=i128::from(*range.end());
            self.integral().is_some_and(|n| range.contains(&n))
        };
        match (self, dtype) {
            (_, dtype) if dtype.is_float() => dtype,
            (_, DType::U8) if fits(0..=u8::MAX.into()) => DType::U8,
            (_, DType::U8 | DType::U32) if fits(0..=u32::MAX.into()) => DType::U32,
            (_, DType::U8 | DType::U32 | DType::I32) if fits(i32::MIN.into()..=i32::MAX.into()) => DType::I32,
            (Number::Integer(_), _) => DType::I32,
            (Number::Float(_), _) => DType::F32,
        }
    }
}

/// An array whose elements are all `number`.
pub(super) fn full(call_site: CallSite, device: &Device, dtype: DType, shape: &[usize], number: Number) -> Array {
    let Some(value) = number.in_dtype(dtype) else {
        let what = format!("{dtype} cannot represent {}", number.integral().unwrap_or_default());
        return Array::invalid(device, dtype, call_site.error(what));
    };
    let expression = Expression {
        inputs: vec![],
        steps: vec![ExpressionStep::Constant { value, dtype }],
    };
    let scalar = call_site.source(device, Primitive::Elementwise(expression), &[], dtype);
    call_site.broadcast(&scalar, shape)
}

/// An operand of a binary operation: an array or a number.
///
/// A number takes the array's dtype if that can hold it, else the narrowest dtype that can hold both: an integer array
/// and a fraction give f32. If no dtype does, the result is invalid.
pub trait ArrayOrNumber: ToOperand {}

impl<T: ToOperand> ArrayOrNumber for T {}

/// Conversions of a [`ArrayOrNumber`]; private to this crate.
pub trait ToOperand {
    /// The array, unless this is a number.
    fn array(&self) -> Option<&Array>;

    /// The number, in the dtype that it takes with `array`. `None` for an array, or if no dtype holds the number.
    fn to_scalar(&self, array: &Array) -> Option<(Scalar, DType)>;

    /// This operand as an array, for an operation with `array`.
    fn to_array(&self, call_site: CallSite, array: &Array) -> Array;
}

impl ToOperand for Array {
    fn array(&self) -> Option<&Array> {
        Some(self)
    }

    fn to_scalar(&self, _: &Array) -> Option<(Scalar, DType)> {
        None
    }

    fn to_array(&self, _: CallSite, _: &Array) -> Array {
        self.clone()
    }
}

impl ToOperand for &Array {
    fn array(&self) -> Option<&Array> {
        Some(self)
    }

    fn to_scalar(&self, _: &Array) -> Option<(Scalar, DType)> {
        None
    }

    fn to_array(&self, _: CallSite, _: &Array) -> Array {
        Array::clone(self)
    }
}

impl ToOperand for Number {
    fn array(&self) -> Option<&Array> {
        None
    }

    fn to_scalar(&self, array: &Array) -> Option<(Scalar, DType)> {
        let dtype = self.dtype_with(array.dtype());
        Some((self.in_dtype(dtype)?, dtype))
    }

    fn to_array(&self, call_site: CallSite, array: &Array) -> Array {
        let dtype = self.dtype_with(array.dtype());
        full(call_site, array.device(), dtype, &[], *self)
    }
}

macro_rules! numbers {
    ($($kind:ident: $($rust:ty),*;)*) => { $($(
        impl From<$rust> for Number {
            fn from(number: $rust) -> Number {
                Number::$kind(number as _)
            }
        }

        impl ToOperand for $rust {
            fn array(&self) -> Option<&Array> {
                None
            }

            fn to_scalar(&self, array: &Array) -> Option<(Scalar, DType)> {
                Number::from(*self).to_scalar(array)
            }

            fn to_array(&self, call_site: CallSite, array: &Array) -> Array {
                Number::from(*self).to_array(call_site, array)
            }
        }
    )*)* };
}

numbers! {
    Integer: i8, i16, i32, i64, isize, u8, u16, u32, u64, usize;
    Float: f32, f64;
}
