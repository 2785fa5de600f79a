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

/// Word `word` of the Threefry block with counter (element index, 0).
fn threefry(seed: u64, word: usize) -> Expression {
    let key = [seed as u32, (seed >> 32) as u32];
    let key = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let mut steps = vec![ExpressionStep::Index];
    let mut push = |step| {
        steps.push(step);
        steps.len() - 1
    };
    let constant = |value| ExpressionStep::Constant {
        value: Scalar::U32(value),
        dtype: DType::U32,
    };
    let add = |push: &mut dyn FnMut(ExpressionStep) -> usize, x: usize, value: u32| {
        let value = push(constant(value));
        push(ExpressionStep::Binary(BinaryOp::Add, x, value))
    };
    let mut x = [add(&mut push, 0, key[0]), push(constant(key[1]))];
    for round in 0..ROUNDS {
        let distance = ROTATIONS[round % 8];
        x[0] = push(ExpressionStep::Binary(BinaryOp::Add, x[0], x[1]));
        let [left, right] = [distance, 32 - distance].map(|distance| push(constant(distance)));
        let high = push(ExpressionStep::Binary(BinaryOp::Shl, x[1], left));
        let low = push(ExpressionStep::Binary(BinaryOp::Shr, x[1], right));
        let turned = push(ExpressionStep::Binary(BinaryOp::Or, high, low));
        x[1] = push(ExpressionStep::Binary(BinaryOp::Xor, turned, x[0]));
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            x[0] = add(&mut push, x[0], key[injection % 3]);
            x[1] = add(&mut push, x[1], key[(injection + 1) % 3].wrapping_add(injection as u32));
        }
    }
    // The last step is the result.
    if word == 0 {
        push(ExpressionStep::Cast(x[0], DType::U32));
    }
    Expression { inputs: vec![], steps }
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
}
