use half::{bf16, f16};

use crate::{DType, Layout};

/// Elements in the type they are computed in ([`DType::compute`]), row-major without gaps: what
/// references read and return.
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
    /// Reads the elements of `layout` from `bytes` (a whole buffer, little-endian).
    pub fn load(dtype: DType, layout: &Layout, bytes: &[u8]) -> Values {
        fn gather<const N: usize, T>(
            layout: &Layout,
            bytes: &[u8],
            decode: impl Fn([u8; N]) -> T,
        ) -> Vec<T> {
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
            DType::U8 | DType::Bool => {
                Values::U32(gather(layout, bytes, |[b]: [u8; 1]| u32::from(b)))
            }
        }
    }

    /// Writes the elements to the places of `layout` in `bytes`, rounded to `dtype`.
    ///
    /// # Panics
    /// When `dtype` is not computed in this type: convert with [`Values::cast`] first.
    pub fn store(&self, dtype: DType, layout: &Layout, bytes: &mut [u8]) {
        fn scatter<const N: usize, T: Copy>(
            values: &[T],
            layout: &Layout,
            bytes: &mut [u8],
            encode: impl Fn(T) -> [u8; N],
        ) {
            let mut values = values.iter();
            layout.for_each(|i| {
                let value = *values.next().expect("as many values as places");
                bytes[i * N..][..N].copy_from_slice(&encode(value));
            });
        }
        match (self, dtype) {
            (Values::F32(v), DType::F32) => scatter(v, layout, bytes, f32::to_le_bytes),
            (Values::F32(v), DType::F16) => {
                scatter(v, layout, bytes, |x| f16::from_f32(x).to_le_bytes())
            }
            (Values::F32(v), DType::BF16) => {
                scatter(v, layout, bytes, |x| bf16::from_f32(x).to_le_bytes())
            }
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
    /// When they are integers.
    pub fn f32(&self) -> &[f32] {
        match self {
            Values::F32(v) => v,
            other => panic!("expected f32 values, found {}", other.dtype()),
        }
    }
}
