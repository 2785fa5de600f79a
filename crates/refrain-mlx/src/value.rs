//! Handles of arrays.

use std::fmt;

use refrain::{Array, Element};

use crate::device::compute_device;
use crate::{DType, Error, Number, Result};

/// A value: an array that never changes, computed when it is needed. Clones are the same value.
///
/// A value has no device. Operations are errors at once if their arguments do not fit.
#[derive(Clone, Debug)]
pub struct Value(Array);

impl Value {
    /// The value of a core array, or the array's error.
    pub(crate) fn of(array: Array) -> Result<Value> {
        match array.error() {
            None => Ok(Value(array)),
            Some(error) => Err(error.into()),
        }
    }

    /// The core array.
    pub fn array(&self) -> &Array {
        &self.0
    }

    /// A value of little-endian elements in row-major order. A bool is one byte, 0 or 1.
    ///
    /// # Errors
    /// Fails if the number of bytes does not match the shape, if `dtype` is not supported, or if memory runs out.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<Value> {
        Value::of(Array::from_bytes(&compute_device(), bytes, dtype.stored()?, shape))
    }

    /// A value of these elements in row-major order.
    ///
    /// # Errors
    /// Fails if the number of elements does not match the shape, or if memory runs out.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[usize]) -> Result<Value> {
        Value::of(Array::from_slice(&compute_device(), elements, shape))
    }

    /// A value without dimensions; `None` takes the number's own dtype: bool, int32 or float32.
    ///
    /// # Errors
    /// Fails if the dtype is not supported.
    pub fn scalar(number: Number, dtype: Option<DType>) -> Result<Value> {
        Value::full(&[], number, dtype.unwrap_or(number.dtype()))
    }

    /// A value whose elements are all `number`, converted to `dtype`; integers wrap.
    pub(crate) fn full(shape: &[usize], number: Number, dtype: DType) -> Result<Value> {
        let stored = dtype.stored()?;
        Value::of(Array::full(&compute_device(), stored, shape, number.in_dtype(dtype)))
    }

    /// Extents of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.0.rank()
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.0.count()
    }

    /// Bytes of the elements.
    pub fn nbytes(&self) -> usize {
        self.size() * self.dtype().size()
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.0.dtype().into()
    }

    /// The number of bytes and the dtype of the elements as the core stores them.
    pub(crate) fn stored(&self) -> refrain::DType {
        self.0.dtype()
    }

    /// Converted to `dtype`: floats are truncated to integers, integers wrap.
    ///
    /// # Errors
    /// Fails if the dtype is not supported.
    pub fn cast(&self, dtype: DType) -> Result<Value> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        Value::of(self.0.astype(dtype.stored()?))
    }

    /// Whether the elements are computed or being computed.
    pub fn is_evaluated(&self) -> bool {
        self.0.is_evaluated()
    }

    /// The little-endian elements in row-major order. Computes the value if needed, and waits for it.
    ///
    /// # Errors
    /// As [`eval`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        refrain::eval_referenced(&[&self.0])?;
        Ok(self.0.to_bytes()?)
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// As [`eval`]; also fails if `T` is not the dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        refrain::eval_referenced(&[&self.0])?;
        Ok(self.0.to_vec()?)
    }

    /// The elements as numbers.
    ///
    /// # Errors
    /// As [`eval`].
    pub fn to_numbers(&self) -> Result<Vec<Number>> {
        fn each<T: Element>(value: &Value, number: impl Fn(T) -> Number) -> Result<Vec<Number>> {
            Ok(value.to_vec::<T>()?.into_iter().map(number).collect())
        }
        match self.stored() {
            refrain::DType::Bool => each(self, Number::Bool),
            refrain::DType::U8 => each(self, |n: u8| Number::Int(n.into())),
            refrain::DType::U32 => each(self, |n: u32| Number::Int(n.into())),
            refrain::DType::I32 => each(self, |n: i32| Number::Int(n.into())),
            refrain::DType::F16 => each(self, |x: half::f16| Number::Float(x.into())),
            refrain::DType::BF16 => each(self, |x: half::bf16| Number::Float(x.into())),
            refrain::DType::F32 => each(self, |x: f32| Number::Float(x.into())),
        }
    }

    /// The only element.
    ///
    /// # Errors
    /// Fails if there is not exactly one element, and as [`eval`].
    pub fn item(&self) -> Result<Number> {
        if self.size() != 1 {
            return Err(Error::value("item can only be called on arrays of size 1."));
        }
        Ok(self.to_numbers()?[0])
    }

    /// A number that is the same for clones of this value and differs among living values.
    pub fn id(&self) -> usize {
        let (computation, result) = self.0.identity();
        (computation as usize) << 4 | result
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Computes values and waits for them. Every value on the way that is still referenced is kept, too.
///
/// # Errors
/// Fails if memory runs out, if the device does not support an operation, or if it fails.
pub fn eval(values: &[Value]) -> Result<()> {
    async_eval(values)?;
    match values.last() {
        // Work runs in the order of its submission.
        Some(_) => crate::synchronize(),
        None => Ok(()),
    }
}

/// [`eval`] that returns when the work is submitted.
///
/// # Errors
/// As [`eval`].
pub fn async_eval(values: &[Value]) -> Result<()> {
    let arrays: Vec<&Array> = values.iter().map(Value::array).collect();
    if arrays.is_empty() {
        return Ok(());
    }
    Ok(refrain::eval_referenced(&arrays)?)
}
