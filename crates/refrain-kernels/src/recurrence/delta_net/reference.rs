//! Gated DeltaNet in plain Rust.

use super::DeltaNetParams;
use crate::{causal_conv, gated_delta, rms_norm};

/// Contiguous inputs of [`reference()`].
#[derive(Clone, Copy)]
pub struct DeltaNetInputs<'a> {
    /// `[T, C]`.
    pub x: &'a [f32],
    /// `[C, W]`.
    pub weights: &'a [f32],
    /// `[T, H]`.
    pub decay: &'a [f32],
    /// `[T, H]`.
    pub beta: &'a [f32],
    /// `[T, H·E]`.
    pub z: &'a [f32],
    /// `[T]`.
    pub positions: &'a [i32],
    /// `[T]`.
    pub sequences: &'a [u32],
    /// `[E]`, if the norm has a weight.
    pub norm_weight: Option<&'a [f32]>,
    /// HK, D, H and E.
    pub sizes: [usize; 4],
}

/// Computes the kernel's formula in plain Rust; updates `conv_state` and `state`.
///
/// # Panics
/// Panics if the slices' lengths contradict each other.
pub fn reference(
    inputs: &DeltaNetInputs<'_>,
    params: &DeltaNetParams,
    conv_state: &mut [f32],
    state: &mut [f32],
) -> Vec<f32> {
    let [key_heads, key_dim, heads, value_dim] = inputs.sizes;
    let keys = key_heads * key_dim;
    let channels = 2 * keys + heads * value_dim;
    let silu = |x: f32| x / (1.0 + (-x).exp());
    let convolved = causal_conv::reference(
        &causal_conv::CausalConvInputs {
            x: inputs.x,
            weights: inputs.weights,
            positions: inputs.positions,
            sequences: inputs.sequences,
            channels,
        },
        conv_state,
    );
    let activated: Vec<f32> = convolved.into_iter().map(silu).collect();
    let columns = |from: usize, to: usize| -> Vec<f32> {
        activated
            .chunks(channels)
            .flat_map(|row| &row[from..to])
            .copied()
            .collect()
    };
    let [q, k] = [0, 1].map(|part| {
        let rows = columns(part * keys, (part + 1) * keys);
        let rows = rms_norm::reference(&rows, None, params.eps, key_dim);
        rows.into_iter().map(|x| x * params.scales[part]).collect::<Vec<f32>>()
    });
    let delta_out = gated_delta::reference(
        &gated_delta::GatedDeltaInputs {
            q: &q,
            k: &k,
            v: &columns(2 * keys, channels),
            decay: inputs.decay,
            beta: inputs.beta,
            positions: inputs.positions,
            sequences: inputs.sequences,
            sizes: inputs.sizes,
        },
        state,
    );
    let normed = rms_norm::reference(&delta_out, inputs.norm_weight, params.norm.eps, value_dim);
    normed.iter().zip(inputs.z).map(|(x, &z)| x * silu(z)).collect()
}
