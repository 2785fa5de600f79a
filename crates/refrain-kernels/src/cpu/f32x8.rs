/// Eight floats: one or two vector registers.
///
/// Each operation is a loop over one array, which compilers turn into one instruction. They often fail to do so for
/// loops over several such arrays at once.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(32))]
pub(super) struct F32x8(pub [f32; F32x8::LANES]);

/// 32 consecutive values of a row.
pub(super) type F32x32 = [F32x8; 4];

/// Number of values of an [`F32x32`].
pub(super) const BLOCK: usize = 4 * F32x8::LANES;

impl F32x8 {
    pub(super) const LANES: usize = 8;
    pub(super) const ZERO: F32x8 = F32x8([0.0; F32x8::LANES]);

    #[inline(always)]
    pub(super) fn new(value: impl Fn(usize) -> f32) -> F32x8 {
        let mut lanes = F32x8::ZERO;
        for (l, lane) in lanes.0.iter_mut().enumerate() {
            *lane = value(l);
        }
        lanes
    }

    /// `self · factor + addend`, rounded once if `FUSED`. Fused is fast only on processors with such an instruction.
    #[inline(always)]
    pub(super) fn mul_add<const FUSED: bool>(self, factor: F32x8, addend: F32x8) -> F32x8 {
        F32x8::new(|l| {
            if FUSED {
                self.0[l].mul_add(factor.0[l], addend.0[l])
            } else {
                self.0[l] * factor.0[l] + addend.0[l]
            }
        })
    }

    /// The sum of all lanes. Not inlined: compilers would otherwise spread the sums over registers for the whole loop.
    #[inline(never)]
    pub(super) fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

/// Converts f16 bits without branches, so that the conversion vectorises.
#[inline(always)]
pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let (sign, magnitude) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    // The exponent bias differs by 112, also for subnormal numbers.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    // An exponent of all ones carries into bit 15.
    let infinite = ((magnitude + 0x400) >> 15) * 0x7f80_0000;
    f32::from_bits(scaled.to_bits() | infinite | sign)
}

/// Converts eight f16 from their bytes.
#[inline(always)]
pub(super) fn f16x8(bytes: [u8; 2 * F32x8::LANES]) -> F32x8 {
    let bits: [[u8; 2]; F32x8::LANES] = bytemuck::cast(bytes);
    F32x8::new(|l| f16_to_f32(u16::from_le_bytes(bits[l])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_converts_as_in_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{bits:04x}: got {found}, expected {expected}");
        }
    }

    #[test]
    fn sum_adds_all_lanes() {
        assert_eq!(F32x8::new(|l| (1 << l) as f32).sum(), 255.0);
    }
}
