use half::{bf16, f16};

/// Element type of a plane of scales or biases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScaleType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper 16 bits of a binary32.
    BF16,
    /// Words of scale records ([`crate::ScaleRecords`]).
    U32,
    /// E8M0 exponents.
    U8,
}

impl ScaleType {
    /// Size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            ScaleType::F32 | ScaleType::U32 => 4,
            ScaleType::F16 | ScaleType::BF16 => 2,
            ScaleType::U8 => 1,
        }
    }

    /// Decodes the element at the start of `bytes`. A [`ScaleType::U8`] yields half of its E8M0 value.
    ///
    /// # Panics
    /// Panics for [`ScaleType::U32`]: a word of a record is not a float.
    #[inline]
    pub fn read(self, bytes: &[u8]) -> f32 {
        match self {
            ScaleType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            ScaleType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            ScaleType::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            ScaleType::U8 => half_power(bytes[0]),
            ScaleType::U32 => panic!("a word of a scale record is not a float"),
        }
    }

    /// Writes `value` rounded to this type. Returns `None` if the result is infinite or if the type holds no floats.
    pub fn write(self, value: f32, out: &mut [u8]) -> Option<()> {
        match self {
            ScaleType::F32 => out.copy_from_slice(&value.to_le_bytes()),
            ScaleType::F16 => {
                let rounded = f16::from_f32(value);
                out.copy_from_slice(&rounded.is_finite().then_some(rounded)?.to_le_bytes());
            }
            ScaleType::BF16 => {
                let rounded = bf16::from_f32(value);
                out.copy_from_slice(&rounded.is_finite().then_some(rounded)?.to_le_bytes());
            }
            ScaleType::U32 | ScaleType::U8 => return None,
        }
        Some(())
    }
}

/// Returns 2^(exponent − 128), or NaN for 255.
#[inline]
pub(crate) fn half_power(exponent: u8) -> f32 {
    match exponent {
        // Subnormal.
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        255 => f32::NAN,
        _ => f32::from_bits((u32::from(exponent) - 1) << 23),
    }
}
