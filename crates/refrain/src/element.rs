use bytemuck::Pod;
use half::{bf16, f16};

use crate::DType;

/// A Rust type that arrays can be made from and read into.
pub trait Element: Pod {
    /// The dtype that stores it.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}

elements!(f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, u32 => U32, u8 => U8);
