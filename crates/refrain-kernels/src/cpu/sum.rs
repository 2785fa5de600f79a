use rayon::prelude::*;

use super::f32x8::F32x8;

/// Values per task.
const SHARE: usize = 1 << 16;
/// Independent vector sums.
const SUMS: usize = 8;

/// Sums all values on all threads. It reads memory at full bandwidth: for values that exceed the caches, nothing else
/// takes time.
pub fn sum(values: &[f32]) -> f32 {
    values.par_chunks(SHARE).map(part).sum()
}

fn part(values: &[f32]) -> f32 {
    let (whole, rest) = values.as_chunks::<{ SUMS * F32x8::LANES }>();
    let mut sums = [0.0; SUMS * F32x8::LANES];
    for values in whole {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_counts_every_value_once() {
        for count in [0, 1, 63, 64, SHARE + 77] {
            let values: Vec<f32> = (0..count).map(|i| (i % 5) as f32).collect();
            assert_eq!(sum(&values), values.iter().sum::<f32>(), "{count} values");
        }
    }
}
