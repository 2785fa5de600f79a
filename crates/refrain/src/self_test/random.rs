//! Pseudorandom operands for the self-test.

use crate::{Array, DType, Device, QuantFormat, Quantised};

/// A generator of pseudorandom arrays, the same on every device.
pub struct RandomArrays<'a> {
    device: &'a Device,
    state: u64,
}

impl<'a> RandomArrays<'a> {
    /// A generator with a fixed seed.
    pub fn new(device: &'a Device) -> Self {
        Self { device, state: 1 }
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Random u32 words.
    pub fn words(&mut self, shape: &[usize]) -> Array {
        let words: Vec<u32> = (0..shape.iter().product()).map(|_| self.bits() as u32).collect();
        Array::from_slice(self.device, &words, shape)
    }

    /// Indices below `end`.
    pub fn indices(&mut self, shape: &[usize], end: u32) -> Array {
        let count: usize = shape.iter().product();
        let indices: Vec<u32> = (0..count).map(|_| (self.bits() % u64::from(end)) as u32).collect();
        Array::from_slice(self.device, &indices, shape)
    }

    /// Floats in [-1, 1).
    pub fn floats(&mut self, dtype: DType, shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        let unit = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let values: Vec<f32> = (0..count).map(|_| unit(self.bits())).collect();
        Array::from_slice(self.device, &values, shape).astype(dtype)
    }

    /// The numbers 0, 1, 2 … in a random order, so that no two are equal.
    pub fn shuffled(&mut self, shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        let mut values: Vec<f32> = (0..count).map(|value| value as f32).collect();
        for last in (1..count).rev() {
            values.swap(last, (self.bits() % (last as u64 + 1)) as usize);
        }
        Array::from_slice(self.device, &values, shape)
    }

    /// The i32 numbers `first`, `first + 1`, ….
    pub fn positions(&self, first: i32, count: i32) -> Array {
        let positions: Vec<i32> = (first..first + count).collect();
        Array::from_slice(self.device, &positions, &[count as usize])
    }
}

/// A matrix `[n, k]` with random quants and scales of ±1.
pub fn quantised(source: &mut RandomArrays<'_>, format: QuantFormat, n: usize, k: usize) -> Quantised {
    let groups = [n, format.scales(k)];
    let scales = match DType::of_scales(format, DType::F16) {
        // Each record begins with two factors in f16: this mask keeps them below 1/32.
        DType::U32 => {
            let record = format.scales(256);
            let mask: Vec<u32> = (0..n * groups[1])
                .map(|word| if word % record == 0 { 0xa7ff_a7ff } else { u32::MAX })
                .collect();
            let mask = Array::from_slice(source.device, &mask, &groups);
            source.words(&groups).bit_and(&mask)
        }
        // Exponents of numbers around 1/64.
        DType::U8 => {
            let exponents: Vec<u8> = (0..n * groups[1]).map(|group| 118 + (group % 5) as u8).collect();
            Array::from_slice(source.device, &exponents, &groups)
        }
        floats => source.floats(floats, &groups),
    };
    let biases = format.has_biases().then(|| source.floats(DType::F16, &groups));
    Quantised {
        format,
        quants: source.words(&[n, format.words(k)]),
        scales,
        biases,
    }
}
