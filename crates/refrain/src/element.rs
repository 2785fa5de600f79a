use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};
use half::{bf16, f16};

use crate::{DType, Error};

/// A Rust type that arrays can be made from and read into.
pub trait Element: NoUninit + CheckedBitPattern<Bits: NoUninit> {
    /// The dtype that stores it.
    const DTYPE: DType;

    /// The elements of which these are the bits, if all are some.
    fn of_bits(bits: Vec<Self::Bits>) -> Option<Vec<Self>>;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn of_bits(bits: Vec<Self>) -> Option<Vec<Self>> {
                Some(bits)
            }
        }
    )* };
}

elements!(f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, u32 => U32, u8 => U8);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn of_bits(bits: Vec<u8>) -> Option<Vec<bool>> {
        let all = bits.iter().all(bool::is_valid_bit_pattern);
        all.then(|| bits.into_iter().map(|byte| byte != 0).collect())
    }
}

/// `count` elements, as `fill` writes their bytes: where they stay, without a copy.
///
/// # Errors
/// Those of `fill`, and where bytes are no elements.
pub(crate) fn filled<T: Element>(
    count: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
) -> Result<Vec<T>, Error> {
    let mut bits = vec![T::Bits::zeroed(); count];
    fill(bytemuck::cast_slice_mut(&mut bits))?;
    T::of_bits(bits).ok_or_else(|| Error::Call(no_elements(T::DTYPE)))
}

fn no_elements(dtype: DType) -> String {
    format!("bytes were stored that are no {dtype}")
}

/// The elements that lie one after another in `bytes`, or what is wrong with them.
pub(crate) fn decode<T: Element>(bytes: &[u8]) -> Result<Vec<T>, String> {
    // Where they lie as elements do, one copy of all takes a fraction of the time.
    if let Ok(elements) = bytemuck::checked::try_cast_slice(bytes) {
        return Ok(elements.to_vec());
    }
    let element = |bytes: &[u8]| bytemuck::checked::try_pod_read_unaligned::<T>(bytes);
    let elements: Result<Vec<T>, _> = bytes.chunks_exact(size_of::<T>()).map(element).collect();
    elements.map_err(|_| no_elements(T::DTYPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_where_they_were_written_if_they_are_elements() {
        let write = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            move |out: &mut [u8]| {
                out.copy_from_slice(&bytes);
                Ok(())
            }
        };
        let floats = filled::<f32>(2, write(bytemuck::cast_slice(&[1.5f32, f32::NEG_INFINITY])));
        assert_eq!(floats.expect("floats"), [1.5, f32::NEG_INFINITY]);
        assert_eq!(
            filled::<bool>(3, write(&[1, 0, 1])).expect("truths"),
            [true, false, true]
        );
        let error = filled::<bool>(2, write(&[1, 2])).expect_err("2 is no truth");
        assert!(
            error.to_string().contains("bytes were stored that are no bool"),
            "{error}"
        );
    }
}
