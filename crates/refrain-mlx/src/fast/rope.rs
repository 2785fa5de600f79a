//! Rotary position embeddings.

use std::hash::Hasher;

use refrain::{Array, Composite, DType};
use refrain_lm::RopeParams;

use crate::lowering::same_position;
use crate::shape::{signed, tuple};
use crate::{Error, Result, Value};

const F32: DType = DType::F32;

/// The position of the first token in [`rope`].
#[derive(Clone, Debug)]
pub enum Offset {
    /// One number for all sequences.
    Int(i64),
    /// A value: one number, or one for each sequence of the batch.
    Value(Value),
}

/// Rotary position embeddings of the first `dims` features of x `[B, .., T, D]`. Frequencies are base^(−2i / dims), or
/// the reciprocals of `freqs`; positions are multiplied by `scale`. `traditional` rotates neighbours, else halves.
///
/// # Errors
/// Fails if x has fewer than three axes or is no float, if `dims` is odd or too large, unless one of `base` and `freqs`
/// is given, or if shapes do not fit.
pub fn rope(
    x: &Value,
    dims: i64,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    offset: &Offset,
    freqs: Option<&Value>,
) -> Result<Value> {
    let rank = x.ndim();
    if rank < 3 {
        let message = format!("[rope] Input must have at least 3 dimensions but got input with {rank} dimensions.");
        return Err(Error::value(message));
    }
    let width = x.shape()[rank - 1];
    let fits = usize::try_from(dims)
        .ok()
        .filter(|&dims| dims > 0 && dims % 2 == 0 && dims <= width);
    let Some(dims) = fits.filter(|_| x.dtype().is_floating()) else {
        let message = format!(
            "[rope] {dims} rotated features do not fit {} of shape {}.",
            x.dtype(),
            tuple(x.shape())
        );
        return Err(Error::value(message));
    };
    check_frequencies(base, freqs, dims / 2)?;
    // Where a token is is no part of the program, so that each token runs the same one.
    let (first, integer) = match offset {
        Offset::Int(offset) => match i32::try_from(*offset) {
            Ok(offset) => (First::Integer, Some(offset)),
            Err(_) => (First::Far(*offset), None),
        },
        Offset::Value(value) => (First::of(value, x.shape()[0])?, None),
    };
    let values = match offset {
        Offset::Value(value) => Some(value),
        Offset::Int(_) => None,
    };
    let inputs: Vec<&Array> = [Some(x), freqs, values]
        .into_iter()
        .flatten()
        .map(Value::array)
        .collect();
    let rotation = Rotation {
        dims,
        traditional,
        base,
        scale,
        first,
    };
    Value::of(Array::composed(rotation, &inputs, integer, x.shape(), x.stored()))
}

fn check_frequencies(base: Option<f32>, freqs: Option<&Value>, half: usize) -> Result<()> {
    match (base, freqs) {
        (Some(_), None) => Ok(()),
        (None, Some(freqs)) if freqs.shape() == [half] => Ok(()),
        (None, Some(freqs)) => {
            let message = format!("[rope] freqs must have shape ({half},), not {}.", tuple(freqs.shape()));
            Err(Error::value(message))
        }
        _ => Err(Error::value("[rope] Only one of base or freqs can have a value.")),
    }
}

/// The position of the first token.
#[derive(Debug)]
enum First {
    /// The composite's integer.
    Integer,
    /// A number beyond i32.
    Far(i64),
    /// The last input: one number.
    Common,
    /// The last input: a number for each sequence.
    Each,
}

impl First {
    fn of(offset: &Value, sequences: usize) -> Result<First> {
        match offset.shape() {
            _ if offset.size() == 1 => Ok(First::Common),
            &[count] if count == sequences => Ok(First::Each),
            shape => {
                let message = format!(
                    "[rope] offset must be a scalar or have a number for each sequence, not {}.",
                    tuple(shape)
                );
                Err(Error::value(message))
            }
        }
    }
}

/// (x `[B, .., T, D]`, {periods of frequencies `[dims / 2]`}, {offsets}) → x with its first `dims` features rotated.
#[derive(Debug)]
struct Rotation {
    dims: usize,
    traditional: bool,
    /// Base of the frequencies. Without one, their periods are the second input.
    base: Option<f32>,
    scale: f32,
    first: First,
}

impl Composite for Rotation {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn key(&self, state: &mut dyn Hasher) {
        state.write_usize(self.dims * 2 + usize::from(self.traditional));
        state.write_u64(self.base.map_or(u64::MAX, |base| base.to_bits().into()));
        state.write_u32(self.scale.to_bits());
        let (kind, number) = match self.first {
            First::Integer => (0, 0),
            First::Far(number) => (1, number),
            First::Common => (2, 0),
            First::Each => (3, 0),
        };
        state.write_u8(kind);
        state.write_u64(number as u64);
    }

    fn compose(&self, inputs: &[Array], offset: Option<&Array>) -> Array {
        if let Some(rotated) = self.by_tokens(inputs, offset) {
            return rotated;
        }
        let x = &inputs[0];
        let (rank, dims, half) = (x.rank(), self.dims, self.dims / 2);
        let angles = self.angles(inputs, offset);
        let (cos, sin) = (angles.cos().astype(x.dtype()), angles.sin().astype(x.dtype()));
        let rotated = x.slice(-1, 0, dims);
        let turned = if self.traditional {
            let mut pairs: Vec<isize> = signed(&x.shape()[..rank - 1]);
            pairs.extend([half as isize, 2]);
            let pairs = rotated.reshape(&pairs);
            let part = |n: usize| {
                let shape: Vec<usize> = [&x.shape()[..rank - 1], &[half]].concat();
                pairs.slice(-1, n, n + 1).reshape(&signed(&shape))
            };
            let [even, odd] = [part(0), part(1)];
            let turned = [&even * &cos - &odd * &sin, &even * &sin + &odd * &cos];
            refrain::stack(&[&turned[0], &turned[1]], -1).reshape(&signed(rotated.shape()))
        } else {
            let [low, high] = [rotated.slice(-1, 0, half), rotated.slice(-1, half, dims)];
            let turned = [&low * &cos - &high * &sin, &low * &sin + &high * &cos];
            refrain::concatenate(&[&turned[0], &turned[1]], -1)
        };
        match x.shape()[rank - 1] {
            width if width == dims => turned,
            width => refrain::concatenate(&[&turned, &x.slice(-1, dims, width)], -1),
        }
    }
}

impl Rotation {
    /// The result by the operation that rotates tokens `[T, H, D]`, if that computes the same: it has whole positions and
    /// does not scale them.
    fn by_tokens(&self, inputs: &[Array], offset: Option<&Array>) -> Option<Array> {
        let x = &inputs[0];
        let (b, h, t, d) = match *x.shape() {
            [b, t, d] => (b, 1, t, d),
            [b, h, t, d] => (b, h, t, d),
            _ => return None,
        };
        // Powers of two scale frequencies and positions alike.
        let is_exact = self.scale.is_normal() && self.scale.to_bits().trailing_zeros() >= f32::MANTISSA_DIGITS - 1;
        if !is_exact || x.count() == 0 {
            return None;
        }
        let tokens = Array::arange(x.device(), DType::I32, t);
        let spread = |positions: Array| positions.broadcast_to(&[b, t]).reshape(&[-1]);
        let positions = match (&self.first, offset, inputs.last()) {
            (First::Integer, Some(first), _) if t == 1 => same_position(first, b),
            (First::Integer, Some(first), _) => spread(tokens + first),
            (First::Common, _, Some(first)) if !first.dtype().is_float() => {
                spread(tokens + first.astype(DType::I32).reshape(&[1]))
            }
            (First::Each, _, Some(first)) if !first.dtype().is_float() => {
                spread(tokens + first.astype(DType::I32).reshape(&[-1, 1]))
            }
            _ => return None,
        };
        let split = [b, h, t, d].map(|n| n as isize);
        let by_token = x.reshape(&split).permute(&[0, 2, 1, 3]);
        let rows = by_token.reshape(&[-1, h as isize, d as isize]);
        let params = RopeParams {
            interleaved: self.traditional,
            ..RopeParams::new(self.dims)
        };
        let frequencies = self.frequencies(inputs) * self.scale;
        let rotated = refrain_lm::rope(&rows, &positions, &frequencies, params);
        let by_token = rotated.reshape(&[b, t, h, d].map(|n| n as isize));
        Some(by_token.permute(&[0, 2, 1, 3]).reshape(&signed(x.shape())))
    }

    /// Radians for each position, f32 `[half]`.
    fn frequencies(&self, inputs: &[Array]) -> Array {
        let half = self.dims / 2;
        match self.base {
            Some(base) => (Array::arange(inputs[0].device(), F32, half) * (-base.ln() / half as f32)).exp(),
            None => 1.0 / inputs[1].astype(F32),
        }
    }

    /// Angles of tokens and pairs of features, f32 `[T, half]` or `[B, 1.., T, half]`.
    fn angles(&self, inputs: &[Array], offset: Option<&Array>) -> Array {
        let x = &inputs[0];
        let (device, rank) = (x.device(), x.rank());
        let tokens = x.shape()[rank - 2];
        let index = |n: usize| Array::arange(device, F32, n);
        let given = || inputs.last().expect("there is x").astype(F32);
        let positions = match (&self.first, offset) {
            (First::Integer, Some(first)) => (Array::arange(device, DType::I32, tokens) + first).astype(F32),
            (First::Far(offset), _) => index(tokens) + *offset as f32,
            (First::Each, _) => {
                let mut batch = vec![1; rank - 1];
                batch[0] = -1;
                index(tokens) + given().reshape(&batch)
            }
            _ => index(tokens) + given().reshape(&[1]),
        };
        (positions * self.scale).expand_dims(-1) * self.frequencies(inputs)
    }
}
