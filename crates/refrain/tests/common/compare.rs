use half::{bf16, f16};
use refrain::{Array, DType, Error};

/// The contents of an array.
#[derive(Clone, PartialEq, Debug)]
pub struct Contents {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

/// Reads an array.
pub fn contents(array: &Array) -> Result<Contents, Error> {
    let bytes = array.to_bytes()?;
    let size = array.dtype().size();
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("four bytes"));
    let half = |b: &[u8]| u16::from_le_bytes(b.try_into().expect("two bytes"));
    let value = |b: &[u8]| match array.dtype() {
        DType::F32 => f64::from(f32::from_bits(word(b))),
        DType::F16 => f16::from_bits(half(b)).to_f64(),
        DType::BF16 => bf16::from_bits(half(b)).to_f64(),
        DType::I32 => f64::from(word(b) as i32),
        DType::U32 => f64::from(word(b)),
        DType::U8 | DType::Bool => f64::from(b[0]),
    };
    let values = bytes.chunks_exact(size).map(value).collect();
    Ok(Contents {
        dtype: array.dtype(),
        shape: array.shape().to_vec(),
        values,
    })
}

/// Relative tolerance of a dtype, with respect to the largest value.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        _ => 0.0,
    }
}

/// Fails unless both are equal within the tolerance of their dtype, with NaN and infinities at the same elements.
pub fn assert_agree(found: &Contents, expected: &Contents, context: &str) {
    assert_eq!(
        (found.dtype, &found.shape),
        (expected.dtype, &expected.shape),
        "{context}"
    );
    assert_eq!(found.values.len(), expected.values.len(), "{context}");
    let largest = expected
        .values
        .iter()
        .filter(|v| v.is_finite())
        .fold(0.0, |a: f64, v| a.max(v.abs()));
    let allowed = tolerance(found.dtype) * largest;
    for (index, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
        let close = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= allowed;
        assert!(
            close,
            "{context}: element {index} of {:?}{:?} is {a}, not {b}",
            found.dtype, found.shape
        );
    }
}

/// Fails unless both are exactly equal.
pub fn assert_equal(found: &Contents, expected: &Contents, context: &str) {
    assert_eq!(
        (found.dtype, &found.shape),
        (expected.dtype, &expected.shape),
        "{context}"
    );
    let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    let differing = found.values.iter().zip(&expected.values).position(|pair| !same(pair));
    if let Some(index) = differing {
        let (a, b) = (found.values[index], expected.values[index]);
        panic!(
            "{context}: element {index} of {:?}{:?} is {a}, not {b}",
            found.dtype, found.shape
        );
    }
}
