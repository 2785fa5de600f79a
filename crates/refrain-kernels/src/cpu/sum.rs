use rayon::prelude::*;

use super::octet::Octet;

/// Values that a thread takes at once.
const SHARE: usize = 1 << 16;
/// Sums of eight that do not wait for each other.
const SUMS: usize = 8;

/// The sum of all values on all threads. It reads memory as fast as the processor does: where values are more than
/// caches hold, nothing else takes time.
pub fn sum(values: &[f32]) -> f32 {
    values.par_chunks(SHARE).map(part).sum()
}

fn part(values: &[f32]) -> f32 {
    let (whole, rest) = values.as_chunks::<{ SUMS * Octet::COUNT }>();
    let mut sums = [0.0; SUMS * Octet::COUNT];
    for values in whole {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_counts_once() {
        for count in [0, 1, 63, 64, SHARE + 77] {
            let values: Vec<f32> = (0..count).map(|i| (i % 5) as f32).collect();
            assert_eq!(sum(&values), values.iter().sum::<f32>(), "{count} values");
        }
    }
}
