//! MLX's type promotion.

use crate::dtype::Category;
use crate::{DType, Operand, Result, Value};

/// The dtype of an operation on operands of both dtypes, as MLX promotes them: u32 with i32 gives i64, u64 with a signed
/// integer f32, f16 with bf16 f32.
pub fn promote(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    // `wide` has the later category.
    let (narrow, wide) = if a.category() <= b.category() { (a, b) } else { (b, a) };
    match (narrow.category(), wide.category()) {
        (Category::Unsigned, Category::Signed) => signed_with(narrow, wide),
        (Category::Floating, Category::Floating) => match (narrow, wide) {
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
            _ => larger(narrow, wide),
        },
        (one, other) if one == other => larger(narrow, wide),
        _ => wide,
    }
}

fn larger(a: DType, b: DType) -> DType {
    if a.size() >= b.size() { a } else { b }
}

/// The dtype that holds both an unsigned and a signed one.
fn signed_with(unsigned: DType, signed: DType) -> DType {
    match unsigned.size().max(signed.size() / 2) {
        _ if unsigned.size() < signed.size() => signed,
        1 => DType::I16,
        2 => DType::I32,
        4 => DType::I64,
        _ => DType::F32,
    }
}

/// Both operands as arrays of their promoted dtype. A number takes the other operand's dtype if that has its kind.
pub(crate) fn promoted(a: &Operand, b: &Operand) -> Result<([Value; 2], DType)> {
    if let (Operand::Value(a), Operand::Value(b)) = (a, b)
        && a.dtype() == b.dtype()
    {
        return Ok(([a.clone(), b.clone()], a.dtype()));
    }
    let (a, b) = (a.value_beside(b)?, b.value_beside(a)?);
    let dtype = promote(a.dtype(), b.dtype());
    Ok(([a.cast(dtype)?, b.cast(dtype)?], dtype))
}

/// Both operands as floats: in their promoted dtype, or in f32 if that is an integer's, which may not hold both.
pub(crate) fn promoted_floats(a: &Operand, b: &Operand) -> Result<([Value; 2], DType)> {
    let (a, b) = (a.value_beside(b)?, b.value_beside(a)?);
    let dtype = promote(a.dtype(), b.dtype()).at_least_float();
    Ok(([a.cast(dtype)?, b.cast(dtype)?], dtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotes_as_mlx_does() {
        use DType::*;
        for (a, b, expected) in [
            (U32, I32, I64),
            (U8, I8, I16),
            (U8, I32, I32),
            (U16, I8, I32),
            (U16, I32, I32),
            (U64, I64, F32),
            (U64, I8, F32),
            (U32, I64, I64),
            (Bool, U8, U8),
            (I64, F16, F16),
            (F16, BF16, F32),
            (BF16, F32, F32),
            (F32, F64, F64),
            (I32, C64, C64),
            (U8, U32, U32),
        ] {
            assert_eq!(promote(a, b), expected, "{a} {b}");
            assert_eq!(promote(b, a), expected, "{b} {a}");
        }
    }
}
