use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};

use crate::DType;

/// A Rust type of array elements.
pub trait Element: NoUninit + CheckedBitPattern {
    /// The corresponding dtype.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}

elements!(f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, u32 => U32, u8 => U8, bool => Bool);

/// Decodes the elements in `bytes`, or says which bytes are invalid.
pub(crate) fn decode<T: Element>(bytes: &[u8]) -> Result<Vec<T>, String> {
    // Aligned bytes are copied at once, which takes a fraction of the time.
    if let Ok(elements) = bytemuck::checked::try_cast_slice(bytes) {
        return Ok(elements.to_vec());
    }
    let element = |bytes: &[u8]| bytemuck::checked::try_pod_read_unaligned::<T>(bytes);
    let elements: Result<Vec<T>, _> = bytes.chunks_exact(size_of::<T>()).map(element).collect();
    elements.map_err(|_| format!("stored bytes are not valid {} values", T::DTYPE))
}
