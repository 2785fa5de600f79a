//! The total order that maxima, argmax and top-k use, as in `order.glsl`: -0 equals 0, and NaN is the largest.

use crate::Values;

/// Returns unsigned keys in the order of the values.
pub(crate) fn keys(values: &Values) -> Vec<u32> {
    match values {
        Values::F32(v) => v.iter().map(|&x| float_key(x)).collect(),
        Values::I32(v) => v.iter().map(|&x| x as u32 ^ 0x8000_0000).collect(),
        Values::U32(v) => v.clone(),
    }
}

fn float_key(x: f32) -> u32 {
    if x.is_nan() {
        return u32::MAX;
    }
    let bits = if x == 0.0 { 0 } else { x.to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_the_floats() {
        let ascending = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -f32::MIN_POSITIVE,
            -1e-45,
            0.0,
            1e-45,
            1.0,
            f32::INFINITY,
            f32::NAN,
        ];
        let keys = keys(&Values::F32(ascending.to_vec()));
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(float_key(-0.0), float_key(0.0));
        assert_eq!(float_key(-f32::NAN), float_key(f32::NAN));
    }
}
