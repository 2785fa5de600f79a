//! Random values, layouts and operands.

use refrain_kernels::{DType, Layout, OperandSpec, Values};

/// SplitMix64 (Steele, Lea and Flood, 2014): a deterministic random number generator.
pub struct Random(u64);

impl Random {
    /// Returns a generator of its own sequence for each seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Returns a number from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns values of `dtype`: floats within ±`scale`, small and large integers, truth values.
    pub fn values(&mut self, dtype: DType, count: usize, scale: f32) -> Values {
        let values = match dtype.compute() {
            DType::F32 => Values::F32((0..count).map(|_| scale * self.unit()).collect()),
            DType::I32 => Values::I32((0..count).map(|_| self.integer() as i32).collect()),
            _ => Values::U32((0..count).map(|_| self.integer()).collect()),
        };
        match dtype {
            DType::Bool => Values::U32((0..count).map(|_| self.bits() as u32 & 1).collect()),
            _ => values.rounded(dtype),
        }
    }

    fn integer(&mut self) -> u32 {
        match self.below(4) {
            0 => self.bits() as u32,
            1 => (self.below(9) as u32).wrapping_neg(),
            _ => self.below(9) as u32,
        }
    }

    /// Returns a layout of `shape` with permuted storage order, gaps and an offset. `repeats` also allows dimensions of
    /// stride 0.
    pub fn layout(&mut self, shape: &[usize], repeats: bool) -> Layout {
        let rank = shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if self.below(2) == 0 {
            for i in (1..rank).rev() {
                order.swap(i, self.below(i + 1));
            }
        }
        let mut strides = vec![0; rank];
        let mut stride = self.pick(&[1, 1, 2]);
        for &d in order.iter().rev() {
            if repeats && self.below(4) == 0 {
                continue;
            }
            strides[d] = stride;
            stride *= shape[d].max(1) + self.pick(&[0, 0, 1]);
        }
        Layout {
            shape: shape.into(),
            strides: strides.into(),
            offset: self.pick(&[0, 1, 3, 8]),
        }
    }

    /// Returns an extent that does not divide evenly into workgroups, or a small one.
    pub fn extent(&mut self) -> usize {
        self.pick(&[1, 2, 3, 5, 7, 8, 17, 33])
    }
}

/// Returns an operand of random layout, and a buffer of random values, also in the gaps.
pub fn operand(
    random: &mut Random,
    dtype: DType,
    shape: &[usize],
    scale: f32,
    repeats: bool,
) -> (OperandSpec, Vec<u8>) {
    let layout = random.layout(shape, repeats);
    let length = layout.end() + 3;
    let bytes = bytes_of(dtype, &random.values(dtype, length, scale));
    (OperandSpec { dtype, layout }, bytes)
}

/// Returns the bytes of contiguous values.
pub fn bytes_of(dtype: DType, values: &Values) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * dtype.size()];
    values.store(dtype, &Layout::contiguous(&[values.len()]), &mut bytes);
    bytes
}

/// Returns indices from -2 to `extent` + 1 as i32; as u32, negative ones wrap.
pub fn index_values(random: &mut Random, dtype: DType, count: usize, extent: usize) -> Values {
    let mut index = || random.below(extent + 4) as i32 - 2;
    match dtype {
        DType::I32 => Values::I32((0..count).map(|_| index()).collect()),
        _ => Values::U32((0..count).map(|_| index() as u32).collect()),
    }
}
