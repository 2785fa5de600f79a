//! Random arrays: what they hold depends on seed and shape alone, and is the same on every device.
//!
//! Numbers are Threefry's, 2×32 bits in 20 rounds (Salmon et al. 2011), keyed by the seed and counted by
//! the element's number.

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar};

use super::Caller;
use crate::{Array, DType, Device, Primitive};

/// Random bits: u32 of `shape`. Invalid where `shape` is beyond any memory.
#[track_caller]
pub fn bits(device: &Device, seed: u64, shape: &[usize]) -> Array {
    words(Caller::new("bits"), device, seed, shape)[0].clone()
}

/// Uniform between 0 and 1, 1 excluded: f32 of `shape`, multiples of 2⁻²⁴. Invalid as [`bits`].
///
/// ```
/// # use refrain::{Device, random};
/// let x = random::uniform(&Device::cpu(), 7, &[1000]);
/// let mean = x.mean(&[0]).to_vec::<f32>().unwrap()[0];
/// assert!((mean - 0.5).abs() < 0.05);
/// ```
#[track_caller]
pub fn uniform(device: &Device, seed: u64, shape: &[usize]) -> Array {
    fraction(&words(Caller::new("uniform"), device, seed, shape)[0])
}

/// Normal, of mean 0 and variance 1 (Box & Muller 1958): f32 of `shape`. Invalid as [`bits`].
#[track_caller]
pub fn normal(device: &Device, seed: u64, shape: &[usize]) -> Array {
    let [radius, angle] = words(Caller::new("normal"), device, seed, shape).map(|words| fraction(&words));
    // The logarithm is of numbers above 0.
    let radius = ((1.0 - radius).log() * -2.0).sqrt();
    radius * (angle * std::f32::consts::TAU).cos()
}

/// The upper 24 bits as a fraction of 1, exactly.
fn fraction(words: &Array) -> Array {
    words.shift_right(8).astype(DType::F32) * (1.0 / 16_777_216.0)
}

/// Both words of each element's block.
fn words(operation: Caller, device: &Device, seed: u64, shape: &[usize]) -> [Array; 2] {
    [0, 1].map(|word| {
        let primitive = Primitive::Elementwise(threefry(seed, word));
        operation.source(device, primitive, shape, DType::U32)
    })
}

/// Distances of rotations, round by round.
const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
const ROUNDS: usize = 20;
/// What the third word of the key is made with.
const PARITY: u32 = 0x1bd1_1bda;

/// Word `word` of Threefry of (the element's number, 0).
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

    /// From the known answers that come with the authors' code, at counter 0.
    #[test]
    fn published_known_answers_come_out() {
        let block = |seed| {
            let words = words(Caller::new("test"), &Device::cpu(), seed, &[1]);
            words.map(|word| word.to_vec::<u32>().expect("computed")[0])
        };
        assert_eq!(block(0), [0x6b20_0159, 0x99ba_4efe]);
    }
}
