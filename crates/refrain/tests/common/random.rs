use refrain::{Array, DType, Device};

/// The SplitMix64 generator (Steele, Lea and Flood, 2014), which gives the same numbers in every run.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A generator with a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// True with probability 1/n.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A random permutation of `0..n`.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }

    /// The axes 0 … rank−1 in random order.
    pub fn axes(&mut self, rank: usize) -> Vec<isize> {
        self.order(rank).into_iter().map(|axis| axis as isize).collect()
    }

    /// A shape of `rank` extents that are awkward for kernels (rarely 0), with at most `max_count` elements.
    pub fn shape(&mut self, rank: usize, max_count: usize) -> Vec<usize> {
        let mut left = max_count;
        let extents = (0..rank).map(|_| {
            let extent = if self.one_in(40) {
                0
            } else {
                self.pick(&[1, 2, 3, 5, 7, 8, 17, 33]).min(left)
            };
            left /= extent.max(1);
            extent
        });
        extents.collect()
    }

    /// A contiguous array of random elements: multiples of 1/8 in ±4, small integers, bools.
    pub fn dense(&mut self, device: &Device, dtype: DType, shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        let eighths: Vec<f32> = (0..count).map(|_| self.below(65) as f32 / 8.0 - 4.0).collect();
        let values = Array::from_slice(device, &eighths, shape);
        match dtype {
            DType::F32 => values,
            DType::U32 | DType::U8 => values.abs().astype(dtype),
            DType::Bool => values.gt(0.0),
            dtype => values.astype(dtype),
        }
    }

    /// Random elements of `shape` as a view: permuted in memory, with gaps, partly broadcast.
    pub fn viewed(&mut self, device: &Device, dtype: DType, shape: &[usize]) -> Array {
        let order = self.order(shape.len());
        // For each dimension in memory order: number of repetitions, start and step.
        let cuts: Vec<(bool, usize, usize)> = order
            .iter()
            .map(|_| (self.one_in(6), self.pick(&[0, 0, 1, 3]), self.pick(&[1, 1, 1, 2])))
            .collect();
        let extents = order.iter().zip(&cuts).map(|(&d, &(repeated, start, step))| {
            if repeated {
                1
            } else {
                start + shape[d] * step + step - 1
            }
        });
        let extents: Vec<usize> = extents.collect();
        let mut x = self.dense(device, dtype, &extents);
        for (axis, &(repeated, start, step)) in cuts.iter().enumerate().filter(|(_, cut)| !cut.0) {
            assert!(!repeated);
            x = x.slice_by(axis as isize, start, start + shape[order[axis]] * step, step);
        }
        let mut inverse = vec![0isize; order.len()];
        order.iter().zip(0..).for_each(|(&d, position)| inverse[d] = position);
        x.permute(&inverse).broadcast_to(shape)
    }
}
