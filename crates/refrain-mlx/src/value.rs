//! Handles of arrays.

use std::fmt;

use refrain::{Array, Element};

use crate::device::compute_device;
use crate::dtype::Category;
use crate::{DType, Error, Number, Result, evaluation};

/// A value: an array that never changes, computed when it is needed. Clones are the same value.
///
/// A value has no device. Operations are errors at once if their arguments do not fit.
#[derive(Clone, Debug)]
pub struct Value {
    array: Array,
    /// The dtype, whose elements the array may store in wider words.
    dtype: DType,
}

impl Value {
    /// The value of a core array, or the array's error.
    pub(crate) fn of(array: Array) -> Result<Value> {
        match array.error() {
            None => Ok(Value {
                dtype: array.dtype().into(),
                array,
            }),
            Some(error) => Err(error.into()),
        }
    }

    /// The value of a core array of elements of this value: it has this dtype if it is stored in the same way.
    pub(crate) fn like(&self, array: Array) -> Result<Value> {
        let keeps = array.dtype() == self.array.dtype();
        let value = Value::of(array)?;
        Ok(if keeps { value.labelled(self.dtype) } else { value })
    }

    /// [`Value::like`] for results of arithmetic, which are wrapped to the dtype.
    pub(crate) fn arithmetic(&self, array: Array) -> Result<Value> {
        let value = self.like(array)?;
        let dtype = value.dtype;
        if dtype.is_native() {
            return Ok(value);
        }
        Ok(Value::of(dtype.wrapped(value.array))?.labelled(dtype))
    }

    /// The same elements with another dtype that is stored in the same way.
    pub(crate) fn labelled(self, dtype: DType) -> Value {
        Value { dtype, ..self }
    }

    /// The core array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// A value of little-endian elements in row-major order. A bool is one byte, 0 or 1.
    ///
    /// # Errors
    /// Fails if the number of bytes does not match the shape, if `dtype` is not supported, if an integer does not fit
    /// into 32 bits, or if memory runs out.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<Value> {
        let stored = dtype.stored()?;
        let words = match dtype {
            _ if dtype.is_native() => None,
            _ => Some(widened(bytes, dtype)?),
        };
        let array = Array::from_bytes(&compute_device(), words.as_deref().unwrap_or(bytes), stored, shape);
        Ok(Value::of(array)?.labelled(dtype))
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
        number.check_width(dtype)?;
        let array = Array::full(&compute_device(), stored, shape, number.in_dtype(dtype));
        Ok(Value::of(array)?.labelled(dtype))
    }

    /// Extents of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.array.rank()
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.array.count()
    }

    /// Bytes of the elements.
    pub fn nbytes(&self) -> usize {
        self.size() * self.dtype().size()
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of the elements as the core stores them.
    pub(crate) fn stored(&self) -> refrain::DType {
        self.array.dtype()
    }

    /// Converted to `dtype`: floats are truncated to integers, integers wrap.
    ///
    /// # Errors
    /// Fails if the dtype is not supported.
    pub fn cast(&self, dtype: DType) -> Result<Value> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let array = dtype.wrapped(self.array.astype(dtype.stored()?));
        Ok(Value::of(array)?.labelled(dtype))
    }

    /// Whether the elements are computed or being computed.
    pub fn is_evaluated(&self) -> bool {
        self.array.is_evaluated()
    }

    /// The little-endian elements in row-major order. Computes the value if needed, and waits for it.
    ///
    /// # Errors
    /// As [`crate::eval`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        evaluation::evaluate(std::slice::from_ref(self))?;
        let bytes = self.array.to_bytes()?;
        Ok(if self.dtype.is_native() {
            bytes
        } else {
            narrowed(&bytes, self.dtype)
        })
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// As [`crate::eval`]; also fails if `T` is not the dtype in which elements are stored.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        evaluation::evaluate(std::slice::from_ref(self))?;
        Ok(self.array.to_vec()?)
    }

    /// The elements as numbers.
    ///
    /// # Errors
    /// As [`crate::eval`].
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
    /// Fails if there is not exactly one element, and as [`crate::eval`].
    pub fn item(&self) -> Result<Number> {
        if self.size() != 1 {
            return Err(Error::value("item can only be called on arrays of size 1."));
        }
        Ok(self.to_numbers()?[0])
    }

    /// A number that is the same for clones of this value and differs among living values.
    pub fn id(&self) -> usize {
        let (computation, result) = self.array.identity();
        (computation as usize) << 4 | result
    }
}

/// Elements of a dtype that the core does not have, as words of 32 bits.
fn widened(bytes: &[u8], dtype: DType) -> Result<Vec<u8>> {
    let mut words = Vec::with_capacity(bytes.len() / dtype.size() * 4);
    for element in bytes.chunks_exact(dtype.size()) {
        let mut wide = [if is_negative(element, dtype) { 0xff } else { 0 }; 8];
        wide[..element.len()].copy_from_slice(element);
        let number = i64::from_le_bytes(wide);
        let number = if dtype == DType::U64 && number < 0 {
            i64::MAX
        } else {
            number
        };
        Number::Int(number).check_width(dtype)?;
        words.extend_from_slice(&wide[..4]);
    }
    Ok(words)
}

/// Words of 32 bits as elements of a dtype that the core does not have.
fn narrowed(words: &[u8], dtype: DType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words.len() / 4 * dtype.size());
    for word in words.chunks_exact(4) {
        let mut wide = [if is_negative(word, dtype) { 0xff } else { 0 }; 8];
        wide[..4].copy_from_slice(word);
        bytes.extend_from_slice(&wide[..dtype.size()]);
    }
    bytes
}

/// Whether a little-endian element of a signed dtype is negative.
fn is_negative(element: &[u8], dtype: DType) -> bool {
    dtype.category() == Category::Signed && element.last().is_some_and(|byte| byte & 0x80 != 0)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.array, f)
    }
}
