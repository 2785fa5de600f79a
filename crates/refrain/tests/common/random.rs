use refrain::{Array, DType, Device};

/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers in every run.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
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

    /// From 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Whether one of `n` equally likely things happens.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Between -1 and 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// An order of `0..n`.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }

    /// Axes 0 … rank−1 in random order.
    pub fn axes(&mut self, rank: usize) -> Vec<isize> {
        self.order(rank).into_iter().map(|axis| axis as isize).collect()
    }

    /// A shape of `rank` extents that kernels find awkward (0 among them, rarely), of at most `most`
    /// elements.
    pub fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        let mut left = most;
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

    /// Gapless random elements: eighths between ±4, small integers, truth values.
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

    /// Random elements of `shape` seen through a view: dimensions in another order in memory, with gaps,
    /// some repeated.
    pub fn viewed(&mut self, device: &Device, dtype: DType, shape: &[usize]) -> Array {
        let order = self.order(shape.len());
        // For each dimension in memory order: how often it repeats, where it starts, its step.
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
        order.iter().zip(0..).for_each(|(&d, place)| inverse[d] = place);
        x.permute(&inverse).broadcast_to(shape)
    }
}
