//! Random arrays. The elements depend only on seed and shape, and are the same on every device.
//!
//! The generator is Threefry-2×32 with 20 rounds (Salmon et al. 2011). The seed is the key, and the counter is the
//! element's index.

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar};

use super::CallSite;
use crate::{Array, DType, Device, Primitive};

/// Random bits: u32 of `shape`. Invalid if the size of `shape` overflows.
#[track_caller]
pub fn bits(device: &Device, seed: u64, shape: &[usize]) -> Array {
    words(CallSite::new("bits"), device, seed, shape)[0].clone()
}

/// Uniformly distributed in [0, 1): f32 of `shape`, multiples of 2⁻²⁴. Invalid as [`bits`].
///
/// ```
/// # use refrain::{Device, random};
/// let x = random::uniform(&Device::cpu(), 7, &[1000]);
/// let mean = x.mean(&[0]).to_vec::<f32>().unwrap()[0];
/// assert!((mean - 0.5).abs() < 0.05);
/// ```
#[track_caller]
pub fn uniform(device: &Device, seed: u64, shape: &[usize]) -> Array {
    fraction(&words(CallSite::new("uniform"), device, seed, shape)[0])
}

/// Normally distributed with mean 0 and variance 1 (Box & Muller 1958): f32 of `shape`. Invalid as [`bits`].
#[track_caller]
pub fn normal(device: &Device, seed: u64, shape: &[usize]) -> Array {
    let [radius, angle] = words(CallSite::new("normal"), device, seed, shape).map(|words| fraction(&words));
    // 1 - radius is positive, so that the logarithm is finite.
    let radius = ((1.0 - radius).log() * -2.0).sqrt();
    radius * (angle * std::f32::consts::TAU).cos()
}

/// The upper 24 bits as a fraction in [0, 1), exactly.
fn fraction(words: &Array) -> Array {
    words.shift_right(8).astype(DType::F32) * (1.0 / 16_777_216.0)
}

/// Both words of each element's Threefry block.
fn words(call_site: CallSite, device: &Device, seed: u64, shape: &[usize]) -> [Array; 2] {
    [0, 1].map(|word| {
        let primitive = Primitive::Elementwise(threefry(seed, word));
        call_site.source(device, primitive, shape, DType::U32)
    })
}

/// Rotation distances in bits, by round modulo 8.
const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
const ROUNDS: usize = 20;
/// The constant from which the third key word is derived.
const PARITY: u32 = 0x1bd1_1bda;

/// Random bits of a key: u32 `[n]`, numbered as JAX and MLX number them. `key` is u32 `[2]`. With h = ⌈n / 2⌉, elements i
/// and h + i are the two words of the block with counter (i, h + i); if n is odd, element h − 1 is the first word of the
/// block (h − 1, 0). Invalid if the key has another shape or dtype.
#[track_caller]
pub fn keyed_bits(key: &Array, n: usize) -> Array {
    let call_site = CallSite::new("keyed_bits");
    if key.dtype() != DType::U32 || key.shape() != [2] {
        return call_site.invalid(&[key], format!("a key is u32[2], not {}{:?}", key.dtype(), key.shape()));
    }
    let Some(count) = u32::try_from(n).ok().filter(|&n| n <= i32::MAX as u32) else {
        return call_site.invalid(&[key], format!("{n} elements are too many"));
    };
    let words = [0, 1].map(|word| call_site.broadcast(&key.slice(0, word, word + 1), &[n]));
    let expression = Primitive::Elementwise(keyed_threefry(count));
    call_site.node(expression, &[&words[0], &words[1]], &[n], DType::U32)
}

/// The steps of an expression on u32.
struct Words(Vec<ExpressionStep>);

impl Words {
    fn push(&mut self, step: ExpressionStep) -> usize {
        self.0.push(step);
        self.0.len() - 1
    }

    fn constant(&mut self, value: u32) -> usize {
        self.push(ExpressionStep::Constant {
            value: Scalar::U32(value),
            dtype: DType::U32,
        })
    }

    fn binary(&mut self, op: BinaryOp, a: usize, b: usize) -> usize {
        self.push(ExpressionStep::Binary(op, a, b))
    }

    fn add(&mut self, x: usize, value: u32) -> usize {
        let value = self.constant(value);
        self.binary(BinaryOp::Add, x, value)
    }

    /// The rounds of the cipher on a counter to which the first two key words were added. `inject(words, x, word,
    /// number)` adds key word `word` and `number` to `x`.
    fn rounds(&mut self, mut x: [usize; 2], inject: impl Fn(&mut Words, usize, usize, u32) -> usize) -> [usize; 2] {
        for round in 0..ROUNDS {
            let distance = ROTATIONS[round % 8];
            x[0] = self.binary(BinaryOp::Add, x[0], x[1]);
            let [left, right] = [distance, 32 - distance].map(|distance| self.constant(distance));
            let high = self.binary(BinaryOp::Shl, x[1], left);
            let low = self.binary(BinaryOp::Shr, x[1], right);
            let turned = self.binary(BinaryOp::Or, high, low);
            x[1] = self.binary(BinaryOp::Xor, turned, x[0]);
            if round % 4 == 3 {
                let injection = round / 4 + 1;
                x[0] = inject(self, x[0], injection % 3, 0);
                x[1] = inject(self, x[1], (injection + 1) % 3, injection as u32);
            }
        }
        x
    }
}

/// Word `word` of the Threefry block with counter (element index, 0).
fn threefry(seed: u64, word: usize) -> Expression {
    let key = [seed as u32, (seed >> 32) as u32];
    let key = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let mut words = Words(vec![ExpressionStep::Index]);
    let x = [words.add(0, key[0]), words.constant(key[1])];
    let x = words.rounds(x, |words, x, word, number| words.add(x, key[word].wrapping_add(number)));
    // The last step is the result.
    if word == 0 {
        words.push(ExpressionStep::Cast(x[0], DType::U32));
    }
    Expression {
        inputs: vec![],
        steps: words.0,
    }
}

/// The words of [`keyed_bits`]: (key word 0, key word 1), both broadcast to `[count]`.
fn keyed_threefry(count: u32) -> Expression {
    let first_half = count.div_ceil(2);
    let mut words = Words(vec![]);
    let mut key = vec![
        words.push(ExpressionStep::Input(0)),
        words.push(ExpressionStep::Input(1)),
    ];
    let parity = words.constant(PARITY);
    let both = words.binary(BinaryOp::Xor, key[0], key[1]);
    key.push(words.binary(BinaryOp::Xor, both, parity));
    let index = words.push(ExpressionStep::Index);
    let half = words.constant(first_half);
    let is_second = words.binary(BinaryOp::Ge, index, half);
    let [before, after] = [BinaryOp::Sub, BinaryOp::Add].map(|op| words.binary(op, index, half));
    let low = words.push(ExpressionStep::Select(is_second, before, index));
    let mut high = words.push(ExpressionStep::Select(is_second, index, after));
    if count % 2 == 1 {
        // The middle element has no partner.
        let [middle, zero] = [first_half - 1, 0].map(|value| words.constant(value));
        let is_middle = words.binary(BinaryOp::Eq, index, middle);
        high = words.push(ExpressionStep::Select(is_middle, zero, high));
    }
    let x = [
        words.binary(BinaryOp::Add, low, key[0]),
        words.binary(BinaryOp::Add, high, key[1]),
    ];
    let x = words.rounds(x, |words, x, word, number| {
        let keyed = words.binary(BinaryOp::Add, x, key[word]);
        if number == 0 { keyed } else { words.add(keyed, number) }
    });
    words.push(ExpressionStep::Select(is_second, x[1], x[0]));
    Expression {
        inputs: vec![DType::U32; 2],
        steps: words.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answer for counter 0 that comes with the authors' code.
    #[test]
    fn threefry_matches_the_published_known_answer() {
        let block = |seed| {
            let words = words(CallSite::new("test"), &Device::cpu(), seed, &[1]);
            words.map(|word| word.to_vec::<u32>().expect("computed")[0])
        };
        assert_eq!(block(0), [0x6b20_0159, 0x99ba_4efe]);
    }

    /// `mlx.core.random.bits((n,), key=key(seed))` of MLX 0.32.4 on its CPU.
    #[test]
    fn keyed_bits_are_numbered_as_in_mlx() {
        let bits = |n: usize| {
            let key = Array::from_slice(&Device::cpu(), &[0u32, 0], &[2]);
            keyed_bits(&key, n).to_vec::<u32>().expect("computed")
        };
        // The block of counter (0, 0), as above.
        assert_eq!(bits(1), [0x6b20_0159]);
        let [four, five] = [bits(4), bits(5)];
        assert_eq!(four.len() + five.len(), 9);
        assert_ne!(four[..2], five[..2]);
    }
}
