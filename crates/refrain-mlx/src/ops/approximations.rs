//! Functions that the core has no step for, composed of those that it has. All but [`sigmoid`] take and return f32.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use refrain::Array;

/// 1 / (1 + e⁻ˣ). In half precision, e^|x| is rounded as on MLX's CPU, whose results decide what programs for it expect.
pub(super) fn sigmoid(x: &Array) -> Array {
    if x.dtype() == refrain::DType::F32 {
        return x.sigmoid();
    }
    let below = 1.0 / (x.abs().exp().astype(refrain::DType::F32) + 1.0);
    x.lt(0.0).select(&below, &(1.0 - &below)).astype(x.dtype())
}

/// eˣ − 1 without cancellation near 0 (Kahan): (u − 1) · x / ln u with u = eˣ.
pub(super) fn expm1(x: &Array) -> Array {
    let u = x.exp();
    let difference = &u - 1.0;
    let exact = &(&difference * x) / &u.log();
    let large = difference.eq(-1.0).bit_or(u.gt(1e30));
    u.eq(1.0).select(x, large.select(&difference, &exact))
}

/// ln(1 + x) without cancellation near 0 (Kahan): ln u · x / (u − 1) with u = 1 + x.
pub(super) fn log1p(x: &Array) -> Array {
    let u = x + 1.0;
    let logarithm = u.log();
    let exact = &(&logarithm * x) / &(&u - 1.0);
    let large = u.gt(1e30);
    u.eq(1.0).select(x, large.select(&logarithm, &exact))
}

pub(super) fn sinh(x: &Array) -> Array {
    let e = expm1(&x.abs());
    let magnitude = (&e + &(&e / &(&e + 1.0))) * 0.5;
    // The quotient of two infinities is 1 in the limit.
    let magnitude = e.lt(f32::INFINITY).select(&magnitude, &e);
    x.lt(0.0).select(&-&magnitude, &magnitude)
}

pub(super) fn cosh(x: &Array) -> Array {
    let e = x.abs().exp();
    (&e + &(1.0 / &e)) * 0.5
}

pub(super) fn arcsinh(x: &Array) -> Array {
    let a = x.abs();
    let square = &a * &a;
    let small = log1p(&(&a + &(&square / &((&square + 1.0).sqrt() + 1.0))));
    // The square overflows beyond.
    let large = a.log() + std::f32::consts::LN_2;
    let magnitude = a.gt(1e18).select(&large, &small);
    x.lt(0.0).select(&-&magnitude, &magnitude)
}

pub(super) fn arccosh(x: &Array) -> Array {
    (x + &((x - 1.0).sqrt() * (x + 1.0).sqrt())).log()
}

pub(super) fn arctanh(x: &Array) -> Array {
    log1p(&(&(x * 2.0) / &(1.0 - x))) * 0.5
}

/// Arc tangent by three ranges and a polynomial (Moshier, Cephes `atanf`).
pub(super) fn arctan(x: &Array) -> Array {
    let a = x.abs();
    let steep = a.gt(2.414_213_6);
    let middle = a.gt(0.414_213_57);
    let reduced = steep.select(&(-1.0 / &a), middle.select(&(&(&a - 1.0) / &(&a + 1.0)), &a));
    let offset = steep.select(FRAC_PI_2, middle.select(FRAC_PI_4, 0.0));
    let z = &reduced * &reduced;
    let p = &z * 8.053_744_5e-2 - 1.387_768_6e-1;
    let p = &p * &z + 1.997_771_1e-1;
    let p = &p * &z - 3.333_294_9e-1;
    let magnitude = offset + (&p * &z * &reduced + &reduced);
    x.lt(0.0).select(&-&magnitude, &magnitude)
}

pub(super) fn arcsin(x: &Array) -> Array {
    arctan(&(x / &((1.0 - &(x * x)).sqrt() + 1.0))) * 2.0
}

pub(super) fn arccos(x: &Array) -> Array {
    arctan(&(&(1.0 - x) / &(x + 1.0)).sqrt()) * 2.0
}

/// The angle of the point (x, y), by C's rules for infinities and signed zeros.
pub(super) fn arctan2(y: &Array, x: &Array) -> Array {
    let (height, width) = (y.abs(), x.abs());
    // Quotients of two zeros and of two infinities are NaN.
    let at_origin = height.eq(0.0).bit_and(width.eq(0.0));
    let is_diagonal = height.eq(f32::INFINITY).bit_and(width.eq(f32::INFINITY));
    let slope = at_origin.select(0.0, is_diagonal.select(1.0, &height / &width));
    let angle = arctan(&slope);
    let angle = is_negative(x).select(PI - &angle, &angle);
    is_negative(y).select(-&angle, &angle)
}

/// Whether the sign is negative, that of zero too.
fn is_negative(x: &Array) -> Array {
    let is_negative_zero = x.eq(0.0).bit_and((1.0 / x).lt(0.0));
    x.lt(0.0).bit_or(&is_negative_zero)
}

/// The inverse error function, within 3 units in the last place (Giles 2010, coefficients by N. Juffa).
pub(crate) fn erfinv(x: &Array) -> Array {
    const TAILS: [f32; 9] = [
        3.036_975_7e-10,
        2.932_431e-8,
        1.221_503_3e-6,
        2.841_089_6e-5,
        3.935_529_7e-4,
        3.026_988_1e-3,
        4.831_858e-3,
        -2.646_461_4e-1,
        8.400_165e-1,
    ];
    const MIDDLE: [f32; 10] = [
        5.438_778_3e-9,
        1.432_854_5e-7,
        1.227_747_9e-6,
        1.129_636_26e-7,
        -5.615_307_6e-5,
        -1.476_976_3e-4,
        2.314_686_8e-3,
        1.153_925_8e-2,
        -2.320_154_8e-1,
        8.862_269e-1,
    ];
    let t = (&(1.0 - x) * &(x + 1.0)).log();
    let polynomial = |coefficients: &[f32]| {
        let first = &t * coefficients[0] + coefficients[1];
        coefficients[2..].iter().fold(first, |p, &c| &p * &t + c)
    };
    t.abs().gt(6.125).select(polynomial(&TAILS), polynomial(&MIDDLE)) * x
}
