//! Comparison of results with expected values.

use refrain_kernels::{DType, Values};

/// Returns the largest allowed difference, relative to the largest expected magnitude.
pub fn tolerance(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        _ => 1e-5,
    }
}

/// Asserts that integers are equal, that floats differ by at most `tolerance` times the largest finite expected
/// magnitude, and that NaN and infinities are at the same indices.
pub fn assert_close(what: &str, found: &Values, expected: &Values, tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    let (Values::F32(found), Values::F32(expected)) = (found, expected) else {
        assert_eq!(found, expected, "{what}");
        return;
    };
    let finite = expected.iter().filter(|x| x.is_finite());
    let scale = finite.fold(0.0, |top: f32, x| top.max(x.abs()));
    // Subnormal results may be flushed to zero.
    let allowed = (tolerance * scale).max(f32::MIN_POSITIVE);
    for (index, (&a, &b)) in found.iter().zip(expected).enumerate() {
        let close = if b.is_finite() {
            (a - b).abs() <= allowed
        } else {
            a == b || (a.is_nan() && b.is_nan())
        };
        assert!(close, "{what}: element {index} is {a:?}, expected {b:?} (±{allowed:e})");
    }
}
