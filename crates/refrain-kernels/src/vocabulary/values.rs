use std::ops::Range;

use half::{bf16, f16};

use crate::{DType, Layout};

/// Dense row-major elements in their compute type ([`DType::compute`]): the inputs and outputs of the CPU references.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// f32, f16 and bf16 elements.
    F32(Vec<f32>),
    /// i32 elements.
    I32(Vec<i32>),
    /// u32, u8 and bool elements.
    U32(Vec<u32>),
}

impl Values {
    /// Reads the elements of `layout` from a whole little-endian buffer.
    pub fn load(dtype: DType, layout: &Layout, bytes: &[u8]) -> Values {
        fn gather<const N: usize, T>(layout: &Layout, bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
            if let Some(range) = contiguous_range(layout) {
                let (elements, _) = bytes[range.start * N..range.end * N].as_chunks();
                return elements.iter().map(|&element| decode(element)).collect();
            }
            let mut out = Vec::with_capacity(layout.count());
            layout.for_each(|i| out.push(decode(bytes[i * N..][..N].try_into().expect("N bytes"))));
            out
        }
        match dtype {
            DType::F32 => Values::F32(gather(layout, bytes, f32::from_le_bytes)),
            DType::F16 => Values::F32(gather(layout, bytes, |b| f16::from_le_bytes(b).to_f32())),
            DType::BF16 => Values::F32(gather(layout, bytes, |b| bf16::from_le_bytes(b).to_f32())),
            DType::I32 => Values::I32(gather(layout, bytes, i32::from_le_bytes)),
            DType::U32 => Values::U32(gather(layout, bytes, u32::from_le_bytes)),
            DType::U8 | DType::Bool => Values::U32(gather(layout, bytes, |[b]: [u8; 1]| u32::from(b))),
        }
    }

    /// Writes the elements to their positions in `bytes`, rounded to `dtype`.
    ///
    /// # Panics
    /// Panics if `dtype` has another compute type; convert with [`Values::cast`] first.
    pub fn store(&self, dtype: DType, layout: &Layout, bytes: &mut [u8]) {
        fn scatter<const N: usize, T: Copy>(
            values: &[T],
            layout: &Layout,
            bytes: &mut [u8],
            encode: impl Fn(T) -> [u8; N],
        ) {
            if let Some(range) = contiguous_range(layout) {
                let (elements, _) = bytes[range.start * N..range.end * N].as_chunks_mut();
                let pairs = elements.iter_mut().zip(&values[..range.len()]);
                return pairs.for_each(|(element, &value)| *element = encode(value));
            }
            let mut values = values.iter();
            layout.for_each(|i| {
                let value = *values.next().expect("as many values as elements");
                bytes[i * N..][..N].copy_from_slice(&encode(value));
            });
        }
        match (self, dtype) {
            (Values::F32(v), DType::F32) => scatter(v, layout, bytes, f32::to_le_bytes),
            (Values::F32(v), DType::F16) => scatter(v, layout, bytes, |x| f16::from_f32(x).to_le_bytes()),
            (Values::F32(v), DType::BF16) => scatter(v, layout, bytes, |x| bf16::from_f32(x).to_le_bytes()),
            (Values::I32(v), DType::I32) => scatter(v, layout, bytes, i32::to_le_bytes),
            (Values::U32(v), DType::U32) => scatter(v, layout, bytes, u32::to_le_bytes),
            (Values::U32(v), DType::U8) => scatter(v, layout, bytes, |x| [x as u8]),
            (Values::U32(v), DType::Bool) => scatter(v, layout, bytes, |x| [u8::from(x != 0)]),
            _ => panic!("{} values are not stored as {dtype}", self.dtype()),
        }
    }

    /// The compute type: F32, I32 or U32.
    pub fn dtype(&self) -> DType {
        match self {
            Values::F32(_) => DType::F32,
            Values::I32(_) => DType::I32,
            Values::U32(_) => DType::U32,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(v) => v.len(),
            Values::I32(v) => v.len(),
            Values::U32(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as f32.
    ///
    /// # Panics
    /// Panics if they are integers.
    pub fn f32(&self) -> &[f32] {
        match self {
            Values::F32(v) => v,
            other => panic!("expected f32 values, found {}", other.dtype()),
        }
    }

    /// Converts the elements to `to` and rounds them as `to` stores them. Floats to integers saturate (NaN gives 0),
    /// integers wrap, and anything but zero is true.
    pub fn cast(&self, to: DType) -> Values {
        match (self, to) {
            (Values::F32(v), DType::I32) => Values::I32(map(v, |x| x as i32)),
            (Values::F32(v), DType::U32) => Values::U32(map(v, |x| x as u32)),
            (Values::F32(v), DType::U8) => Values::U32(map(v, |x| u32::from(x as u8))),
            (Values::F32(v), DType::Bool) => Values::U32(map(v, |x| u32::from(x != 0.0))),
            (Values::F32(v), _) => Values::F32(v.clone()).rounded(to),
            (Values::I32(v), DType::I32) => Values::I32(v.clone()),
            (Values::I32(v), DType::U32 | DType::U8 | DType::Bool) => Values::U32(map(v, |x| x as u32)).rounded(to),
            (Values::I32(v), _) => Values::F32(map(v, |x| x as f32)).rounded(to),
            (Values::U32(v), DType::I32) => Values::I32(map(v, |x| x as i32)),
            (Values::U32(v), DType::U32 | DType::U8 | DType::Bool) => Values::U32(v.clone()).rounded(to),
            (Values::U32(v), _) => Values::F32(map(v, |x| x as f32)).rounded(to),
        }
    }

    /// Rounds the elements as `dtype` stores them. f16 and bf16 round to nearest, ties to even; u8 wraps; bool is 0 or
    /// 1.
    ///
    /// # Panics
    /// Panics if `dtype` has another compute type; convert with [`Values::cast`].
    pub fn rounded(mut self, dtype: DType) -> Values {
        match (&mut self, dtype) {
            (Values::F32(v), DType::F16) => {
                v.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32());
            }
            (Values::F32(v), DType::BF16) => {
                v.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
            }
            (Values::U32(v), DType::U8) => v.iter_mut().for_each(|x| *x &= 0xff),
            (Values::U32(v), DType::Bool) => v.iter_mut().for_each(|x| *x = u32::from(*x != 0)),
            (values, _) => assert_eq!(values.dtype(), dtype.compute(), "stored as {dtype}"),
        }
        self
    }

    /// `count` zeros in `dtype`'s compute type.
    pub fn zeros(dtype: DType, count: usize) -> Values {
        match dtype.compute() {
            DType::F32 => Values::F32(vec![0.0; count]),
            DType::I32 => Values::I32(vec![0; count]),
            _ => Values::U32(vec![0; count]),
        }
    }

    /// The elements of a range.
    ///
    /// # Panics
    /// Panics if the range exceeds the length.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Values {
        match self {
            Values::F32(v) => Values::F32(v[range].to_vec()),
            Values::I32(v) => Values::I32(v[range].to_vec()),
            Values::U32(v) => Values::U32(v[range].to_vec()),
        }
    }

    /// Gathers elements by index; `None` yields zero.
    pub(crate) fn gather(&self, indices: impl Iterator<Item = Option<usize>>) -> Values {
        match self {
            Values::F32(v) => Values::F32(indices.map(|i| i.map_or(0.0, |i| v[i])).collect()),
            Values::I32(v) => Values::I32(indices.map(|i| i.map_or(0, |i| v[i])).collect()),
            Values::U32(v) => Values::U32(indices.map(|i| i.map_or(0, |i| v[i])).collect()),
        }
    }
}

fn map<T: Copy, U>(values: &[T], convert: impl Fn(T) -> U) -> Vec<U> {
    values.iter().map(|&x| convert(x)).collect()
}

/// The range of the elements if they are dense, row-major and not empty.
fn contiguous_range(layout: &Layout) -> Option<Range<usize>> {
    let range = layout.offset..layout.offset + layout.count();
    (layout.is_contiguous() && !range.is_empty()).then_some(range)
}
