//! The counter-based random number generator Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
//! *Parallel random numbers: as easy as 1, 2, 3*, SC 2011).
//!
//! A number is a pure function of key and counter. It does not depend on batching, chunking or the device.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const PHILOX_ROUNDS: usize = 10;

/// Returns the four words of Philox4x32-10 for a counter and a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], mut key) = (counter, key);
    for _ in 0..PHILOX_ROUNDS {
        let (high0, low0) = multiply(MULTIPLIERS[0], c0);
        let (high1, low1) = multiply(MULTIPLIERS[1], c2);
        (c0, c1, c2, c3) = (high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0);
        key = std::array::from_fn(|i| key[i].wrapping_add(KEY_STEPS[i]));
    }
    [c0, c1, c2, c3]
}

/// Returns a number in [0, 1) for a position of a sequence: a multiple of 2⁻²⁴, which f32 holds exactly. It is the
/// first word of Philox with key `seed` and counter (position, sequence), each as two words, the lower first.
pub fn uniform(seed: u64, sequence: u64, position: u64) -> f32 {
    let [position, sequence, key] = [position, sequence, seed].map(words);
    let counter = [position[0], position[1], sequence[0], sequence[1]];
    let [word, ..] = philox4x32(counter, key);
    (word >> 8) as f32 / (1 << 24) as f32
}

fn multiply(a: u32, b: u32) -> (u32, u32) {
    let [low, high] = words(u64::from(a) * u64::from(b));
    (high, low)
}

/// Returns the lower and the upper word.
fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_published_test_vectors() {
        let known = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            // The digits of pi.
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in known {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }

    #[test]
    fn numbers_depend_on_seed_sequence_and_position() {
        let base = uniform(1, 2, 3);
        assert_eq!(base, uniform(1, 2, 3));
        for other in [
            uniform(2, 2, 3),
            uniform(1, 3, 3),
            uniform(1, 2, 4),
            uniform(1 << 32 | 1, 2, 3),
            uniform(1, 1 << 32 | 2, 3),
            uniform(1, 2, 1 << 32 | 3),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn numbers_are_uniform_over_the_unit_interval() {
        let mut counts = [0u32; 16];
        for position in 0..16_000 {
            let number = uniform(7, 0, position);
            assert!((0.0..1.0).contains(&number));
            counts[(number * 16.0) as usize] += 1;
        }
        // Expected 1000 each, with a standard deviation of 31.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
