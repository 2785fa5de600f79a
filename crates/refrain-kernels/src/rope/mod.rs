//! Rotary position embedding (Su et al., 2021).
//!
//! `x` `[T, H, D]` (f32, f16 or bf16, any strides), `positions` `[T]` i32, `frequencies` `[dims/2]`
//! f32 → `out` `[T, H, D]`, any float type and strides. Of each head's D values the first `dims` are
//! rotated in pairs, `(i, i + dims/2)` or, when interleaved, `(2i, 2i + 1)`; the rest is copied:
//!
//! `out_a = x_a·c − x_b·s`, `out_b = x_b·c + x_a·s`, where `c` and `s` are `scale` times the cosine
//! and sine of `f32(position) · frequency[i]`. The product is rounded to f32, as in transformers.
//! Sine and cosine of the rounded angle are accurate to about 2e-7, however large the angle.

use std::hash::{Hash, Hasher};

use rayon::prelude::*;

use crate::kit::text::{SourceBuilder, address, grid, require_dtype, require_float, require_shape};
use crate::kit::threads::min_items;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported, tuning};

const OP: &str = "rope";

/// Parameters of [`call`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RopeParams {
    /// Number of rotated values per head: even, at most D.
    pub dims: usize,
    /// Whether pairs are interleaved, `(2i, 2i + 1)`, instead of split halves, `(i, i + dims/2)` (NeoX).
    pub interleaved: bool,
    /// Factor of the cosine and the sine (YaRN's attention factor; else 1).
    pub scale: f32,
}

impl Hash for RopeParams {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dims, self.interleaved, self.scale.to_bits()).hash(state);
    }
}

impl RopeParams {
    /// Returns parameters that rotate the first `dims` values of each head, in split halves and with scale 1.
    pub fn new(dims: usize) -> RopeParams {
        RopeParams {
            dims,
            interleaved: false,
            scale: 1.0,
        }
    }

    /// Returns the indices of pair `i` in a head.
    fn pair(&self, i: usize) -> (usize, usize) {
        if self.interleaved {
            (2 * i, 2 * i + 1)
        } else {
            (i, i + self.dims / 2)
        }
    }
}

/// Returns the call. Operands: x 0, positions 1, frequencies 2, out 3.
///
/// # Errors
/// When dtypes or shapes do not match, `dims` is odd or above D, or a size exceeds 32-bit indices.
pub fn call(
    traits: &Traits,
    x: &OperandSpec,
    positions: &OperandSpec,
    frequencies: &OperandSpec,
    out: &OperandSpec,
    params: &RopeParams,
) -> Result<Call, Unsupported> {
    require_float(OP, x)?;
    require_float(OP, out)?;
    require_dtype(OP, positions, DType::I32)?;
    require_dtype(OP, frequencies, DType::F32)?;
    let size = |what: String| Unsupported::Size { op: OP, what };
    let &[tokens, heads, head_dim] = &x.layout.shape[..] else {
        return Err(size(format!("x has shape {:?}, expected [T, H, D]", x.layout.shape)));
    };
    if !params.dims.is_multiple_of(2) || params.dims > head_dim {
        let dims = params.dims;
        return Err(size(format!(
            "RoPE over {dims} of {head_dim} values per head: must be even and at most the head dimension"
        )));
    }
    require_shape(OP, "positions", positions, &[tokens])?;
    require_shape(OP, "frequencies", frequencies, &[params.dims / 2])?;
    require_shape(OP, "the result", out, &x.layout.shape)?;
    // One invocation per pair, and one per copied value.
    let units = head_dim - params.dims / 2;
    let all = tokens * heads * units;
    let threads = tuning::choose(traits).row_threads;
    let kernel = SourceBuilder::new(traits, OP)
        .define("INTERLEAVED", u32::from(params.interleaved))
        .input("x", x.dtype)
        .input("positions", DType::I32)
        .input("frequencies", DType::F32)
        .output("y", out.dtype)
        .body(include_str!("../kit/sincos.glsl"))
        .body(include_str!("rope.comp"))
        .kernel(vec![(0, threads)]);
    let operands = [x, positions, frequencies, out];
    let mut push = Vec::new();
    for (number, operand) in operands.into_iter().enumerate() {
        push.push(address(OP, number, operand)?);
    }
    let strides = operands
        .into_iter()
        .flat_map(|o| o.layout.strides.iter().map(|&s| s as u32));
    let sizes = [tokens, heads, units, params.dims / 2].map(|v| v as u32);
    push.extend(sizes.into_iter().chain(strides).map(Push::U32));
    push.push(Push::F32(params.scale));
    Ok(Call {
        kernel,
        groups: grid(OP, all.div_ceil(threads as usize))?,
        push,
    })
}

/// Rotates `x` `[T, H, D]`, row-major, with T = `positions.len()` and D = `head_dim`.
///
/// # Panics
/// Panics if `x` does not hold a whole number of heads per position, `params.dims` exceeds `head_dim`, or
/// `frequencies` holds fewer than `dims/2` values.
pub fn reference(x: &[f32], positions: &[i32], frequencies: &[f32], head_dim: usize, params: &RopeParams) -> Vec<f32> {
    assert!(params.dims <= head_dim, "dims are at most the head dimension");
    let mut out = x.to_vec();
    if out.is_empty() {
        return out;
    }
    let per_token = x.len() / positions.len();
    let frequencies = &frequencies[..params.dims / 2];
    out.par_chunks_mut(per_token)
        .zip(positions)
        .with_min_len(min_items(per_token))
        .for_each(|(token, &position)| {
            let rotations: Vec<(f32, f32)> = frequencies
                .iter()
                .map(|&frequency| {
                    let angle = f64::from(position as f32 * frequency);
                    let (sin, cos) = angle.sin_cos();
                    (cos as f32 * params.scale, sin as f32 * params.scale)
                })
                .collect();
            for head in token.chunks_exact_mut(head_dim) {
                for (i, &(cos, sin)) in rotations.iter().enumerate() {
                    let (a, b) = params.pair(i);
                    let (x, y) = (head[a], head[b]);
                    head[a] = x * cos - y * sin;
                    head[b] = y * cos + x * sin;
                }
            }
        });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_INTERLEAVED: RopeParams = RopeParams {
        dims: 4,
        interleaved: false,
        scale: 1.0,
    };

    #[test]
    fn position_zero_is_the_identity_and_a_quarter_turn_swaps_a_pair() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(reference(&x, &[0], &[1.0, 0.5], 6, &NOT_INTERLEAVED), x);
        let quarter = std::f32::consts::FRAC_PI_2;
        let y = reference(&x, &[1], &[quarter, 0.0], 6, &NOT_INTERLEAVED);
        let expected = [-3.0, 2.0, 1.0, 4.0, 5.0, 6.0];
        for (y, e) in y.iter().zip(expected) {
            assert!((y - e).abs() < 1e-6, "{y} {e}");
        }
    }

    #[test]
    fn interleaved_pairs_are_adjacent() {
        let params = RopeParams {
            interleaved: true,
            ..NOT_INTERLEAVED
        };
        let frequencies = [0.3, 0.01];
        let y = reference(&[1.0, 3.0, 2.0, 4.0], &[7], &frequencies, 4, &params);
        let halves = reference(&[1.0, 2.0, 3.0, 4.0], &[7], &frequencies, 4, &NOT_INTERLEAVED);
        assert_eq!(y, [halves[0], halves[2], halves[1], halves[3]]);
    }

    #[test]
    fn angles_are_rounded_to_f32_however_large() {
        let (position, frequency) = (1_000_003, 0.987_654_3_f32);
        let params = RopeParams {
            dims: 2,
            interleaved: false,
            scale: 2.0,
        };
        let y = reference(&[1.0, 0.0], &[position], &[frequency], 2, &params);
        let angle = f64::from(position as f32 * frequency);
        assert_eq!(y, [2.0 * angle.cos() as f32, 2.0 * angle.sin() as f32]);
    }
}
