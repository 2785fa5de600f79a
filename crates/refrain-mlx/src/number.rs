//! Numbers and operands.

use crate::dtype::Category;
use crate::{DType, Error, Result, Value};

/// A number of the program: weak in promotion, as Python's numbers are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl Number {
    /// The dtype of an array made of this number alone.
    pub fn dtype(self) -> DType {
        match self {
            Number::Bool(_) => DType::Bool,
            Number::Int(n) if i32::try_from(n).is_ok() => DType::I32,
            Number::Int(_) => DType::I64,
            Number::Float(_) => DType::F32,
        }
    }

    /// The dtype of this number beside an operand of `dtype`.
    fn dtype_beside(self, dtype: DType) -> DType {
        match self {
            Number::Bool(_) => dtype,
            Number::Int(_) if dtype == DType::Bool => DType::I32,
            Number::Int(_) => dtype,
            Number::Float(_) if dtype.category() >= Category::Floating => dtype,
            Number::Float(_) => DType::F32,
        }
    }

    /// Fails for integers that `dtype` does not hold.
    fn check_range(self, dtype: DType) -> Result<()> {
        let Number::Int(n) = self else {
            return Ok(());
        };
        let range = match dtype {
            DType::I8 => i64::from(i8::MIN)..=i64::from(i8::MAX),
            DType::I16 => i64::from(i16::MIN)..=i64::from(i16::MAX),
            DType::I32 => i64::from(i32::MIN)..=i64::from(i32::MAX),
            DType::U8 => 0..=i64::from(u8::MAX),
            DType::U16 => 0..=i64::from(u16::MAX),
            DType::U32 => 0..=i64::from(u32::MAX),
            DType::U64 => 0..=i64::MAX,
            _ => return self.check_width(dtype),
        };
        if range.contains(&n) {
            return self.check_width(dtype);
        }
        Err(Error::value(format!(
            "Converting {n} to {dtype} would result in overflow."
        )))
    }

    /// Fails for integers that 64-bit dtypes hold, but 32 bits do not.
    pub(crate) fn check_width(self, dtype: DType) -> Result<()> {
        let fits = match (self, dtype) {
            (Number::Int(n), DType::I64) => i32::try_from(n).is_ok(),
            (Number::Int(n), DType::U64) => u32::try_from(n).is_ok(),
            _ => true,
        };
        if fits {
            return Ok(());
        }
        let message = format!(
            "{dtype} numbers beyond 32 bits are not supported yet: {}.",
            self.to_i64()
        );
        Err(Error::not_implemented(message))
    }

    /// The value as a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Bool(b) => f64::from(u8::from(b)),
            Number::Int(n) => n as f64,
            Number::Float(x) => x,
        }
    }

    /// The value as an integer; floats are truncated.
    pub fn to_i64(self) -> i64 {
        match self {
            Number::Bool(b) => i64::from(b),
            Number::Int(n) => n,
            Number::Float(x) => x as i64,
        }
    }

    /// The number as the core converts it to `dtype`: integers wrap.
    pub(crate) fn in_dtype(self, dtype: DType) -> refrain::Number {
        let integer = |n: i64| {
            refrain::Number::Integer(match dtype {
                DType::I8 => i128::from(n as i8),
                DType::I16 => i128::from(n as i16),
                DType::I32 | DType::I64 => i128::from(n as i32),
                DType::U8 => i128::from(n as u8),
                DType::U16 => i128::from(n as u16),
                DType::U32 | DType::U64 => i128::from(n as u32),
                _ => i128::from(n),
            })
        };
        match self {
            Number::Bool(b) => integer(i64::from(b)),
            Number::Int(n) => integer(n),
            Number::Float(x) => refrain::Number::Float(x),
        }
    }
}

impl Number {
    /// [`Number::in_dtype`] of the integer part.
    pub(crate) fn in_dtype_truncated(self, dtype: DType) -> refrain::Number {
        Number::Int(self.to_i64()).in_dtype(dtype)
    }
}

impl From<bool> for Number {
    fn from(b: bool) -> Number {
        Number::Bool(b)
    }
}

impl From<i64> for Number {
    fn from(n: i64) -> Number {
        Number::Int(n)
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Number {
        Number::Float(x)
    }
}

/// An operand of an operation: a value or a number.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A number.
    Number(Number),
    /// A value that takes the dtype of a value beside it, as NumPy's arrays do.
    Adapting(Value),
}

impl Operand {
    /// The operand as a value of its own dtype.
    ///
    /// # Errors
    /// Fails for integers that need a dtype which is not supported.
    pub fn value(&self) -> Result<Value> {
        match self {
            Operand::Value(value) | Operand::Adapting(value) => Ok(value.clone()),
            Operand::Number(number) => Value::scalar(*number, None),
        }
    }

    /// The operand as a value beside another operand.
    pub(crate) fn value_beside(&self, other: &Operand) -> Result<Value> {
        match (self, other) {
            (Operand::Value(value), _) => Ok(value.clone()),
            (Operand::Number(number), Operand::Value(other)) => {
                let dtype = number.dtype_beside(other.dtype());
                number.check_range(dtype)?;
                Value::scalar(*number, Some(dtype))
            }
            (Operand::Adapting(value), Operand::Value(other)) => value.cast(other.dtype()),
            (Operand::Adapting(value), _) => Ok(value.clone()),
            (Operand::Number(number), _) => Value::scalar(*number, None),
        }
    }
}

impl From<Value> for Operand {
    fn from(value: Value) -> Operand {
        Operand::Value(value)
    }
}

impl From<&Value> for Operand {
    fn from(value: &Value) -> Operand {
        Operand::Value(value.clone())
    }
}

impl<T: Into<Number>> From<T> for Operand {
    fn from(number: T) -> Operand {
        Operand::Number(number.into())
    }
}
