/// Numbers that are computed together: what one or two vector registers hold.
///
/// Each operation is a loop over whole arrays, which compilers turn into one instruction; loops over several
/// such arrays at once they often do not.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(32))]
pub(super) struct Octet(pub [f32; Octet::COUNT]);

/// 32 neighbouring values of a row.
pub(super) type Quartet = [Octet; 4];

/// Values of a [`Quartet`].
pub(super) const BLOCK: usize = 4 * Octet::COUNT;

impl Octet {
    pub(super) const COUNT: usize = 8;
    pub(super) const ZERO: Octet = Octet([0.0; Octet::COUNT]);

    #[inline(always)]
    pub(super) fn new(value: impl Fn(usize) -> f32) -> Octet {
        let mut lanes = Octet::ZERO;
        for (l, lane) in lanes.0.iter_mut().enumerate() {
            *lane = value(l);
        }
        lanes
    }

    /// `self · factor + addend`, rounded once where `FUSED`: fast only where the processor has an instruction
    /// for it.
    #[inline(always)]
    pub(super) fn times_plus<const FUSED: bool>(self, factor: Octet, addend: Octet) -> Octet {
        Octet::new(|l| {
            if FUSED {
                self.0[l].mul_add(factor.0[l], addend.0[l])
            } else {
                self.0[l] * factor.0[l] + addend.0[l]
            }
        })
    }

    /// The sum of all; a function of its own, or sums of several would be spread over registers from the
    /// beginning of a loop on.
    #[inline(never)]
    pub(super) fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

/// The number that an f16 of these bits is; without branches, as vectors need it.
#[inline(always)]
pub(super) fn half_to_f32(bits: u16) -> f32 {
    let (sign, magnitude) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    // The exponents' bias differs by 112, subnormal numbers included.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    // An exponent of all ones carries into bit 15.
    let infinite = ((magnitude + 0x400) >> 15) * 0x7f80_0000;
    f32::from_bits(scaled.to_bits() | infinite | sign)
}

/// The numbers that eight f16 are, from their bytes.
#[inline(always)]
pub(super) fn halves(bytes: [u8; 2 * Octet::COUNT]) -> Octet {
    let bits: [[u8; 2]; Octet::COUNT] = bytemuck::cast(bytes);
    Octet::new(|l| half_to_f32(u16::from_le_bytes(bits[l])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_what_the_library_says() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (half_to_f32(bits), half::f16::from_bits(bits).to_f32());
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{bits:04x}: {found} is not {expected}");
        }
    }

    #[test]
    fn a_sum_is_of_all_lanes() {
        assert_eq!(Octet::new(|l| (1 << l) as f32).sum(), 255.0);
    }
}
