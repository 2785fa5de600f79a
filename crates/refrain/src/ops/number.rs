//! Numbers beside arrays.

use refrain_kernels::elementwise::{Expression, ExpressionStep, Scalar};

use super::Caller;
use crate::{Array, DType, Device, Primitive};

/// A number, exact until it takes a dtype.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A whole number.
    Integer(i128),
    /// Any other: also one written as such, like `2.0`.
    Float(f64),
}

impl Number {
    /// The number in `dtype`: floats are rounded to floats and, to integers, truncated and saturated (NaN
    /// gives 0); bool is whether it is not zero. `None` for an integer that an integer dtype does not hold.
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

    /// The whole number that this is.
    fn whole(self) -> Option<i128> {
        match self {
            Number::Integer(n) => Some(n),
            // Beyond, no integer dtype holds it.
            Number::Float(x) if x.fract() == 0.0 && x.abs() < 9.0e18 => Some(x as i128),
            Number::Float(_) => None,
        }
    }

    /// The dtype that this takes beside an array of `dtype`: that, if it can hold the number; else the
    /// narrowest that can hold both.
    fn dtype_beside(self, dtype: DType) -> DType {
        let fits = |range: std::ops::RangeInclusive<i64>| {
            let range = i128::from(*range.start())..=i128::from(*range.end());
            self.whole().is_some_and(|n| range.contains(&n))
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

/// Every element `number`.
pub(super) fn filled(operation: Caller, device: &Device, dtype: DType, shape: &[usize], number: Number) -> Array {
    let Some(value) = number.in_dtype(dtype) else {
        let what = format!("{dtype} does not hold {}", number.whole().unwrap_or_default());
        return Array::invalid(device, dtype, operation.error(what));
    };
    let expression = Expression {
        inputs: vec![],
        steps: vec![ExpressionStep::Constant { value, dtype }],
    };
    let scalar = operation.source(device, Primitive::Elementwise(expression), &[], dtype);
    operation.broadcast(&scalar, shape)
}

/// What an operation takes beside an array: another array, or a number. A number takes the array's dtype
/// if that can hold it, else the narrowest that can hold both: integers and a fraction meet in f32. Where
/// no dtype does, the result is invalid.
pub trait Term: Beside {}

impl<T: Beside> Term for T {}

/// What [`Term`]s have in common; of this crate alone.
pub trait Beside {
    /// The array that this is.
    fn array(&self) -> Option<&Array>;

    /// The number that this is, where a dtype holds it beside `array`.
    fn scalar_beside(&self, array: &Array) -> Option<(Scalar, DType)>;

    /// This as an array, where `operation` takes it beside `array`.
    fn beside(&self, operation: Caller, array: &Array) -> Array;
}

impl Beside for Array {
    fn array(&self) -> Option<&Array> {
        Some(self)
    }

    fn scalar_beside(&self, _: &Array) -> Option<(Scalar, DType)> {
        None
    }

    fn beside(&self, _: Caller, _: &Array) -> Array {
        self.clone()
    }
}

impl Beside for &Array {
    fn array(&self) -> Option<&Array> {
        Some(self)
    }

    fn scalar_beside(&self, _: &Array) -> Option<(Scalar, DType)> {
        None
    }

    fn beside(&self, _: Caller, _: &Array) -> Array {
        Array::clone(self)
    }
}

impl Beside for Number {
    fn array(&self) -> Option<&Array> {
        None
    }

    fn scalar_beside(&self, array: &Array) -> Option<(Scalar, DType)> {
        let dtype = self.dtype_beside(array.dtype());
        Some((self.in_dtype(dtype)?, dtype))
    }

    fn beside(&self, operation: Caller, array: &Array) -> Array {
        let dtype = self.dtype_beside(array.dtype());
        filled(operation, array.device(), dtype, &[], *self)
    }
}

macro_rules! numbers {
    ($($kind:ident: $($rust:ty),*;)*) => { $($(
        impl From<$rust> for Number {
            fn from(number: $rust) -> Number {
                Number::$kind(number as _)
            }
        }

        impl Beside for $rust {
            fn array(&self) -> Option<&Array> {
                None
            }

            fn scalar_beside(&self, array: &Array) -> Option<(Scalar, DType)> {
                Number::from(*self).scalar_beside(array)
            }

            fn beside(&self, operation: Caller, array: &Array) -> Array {
                Number::from(*self).beside(operation, array)
            }
        }
    )*)* };
}

numbers! {
    Integer: i8, i16, i32, i64, isize, u8, u16, u32, u64, usize;
    Float: f32, f64;
}
