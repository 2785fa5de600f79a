//! The gated delta rule.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite};
use refrain_lm::gated_delta_from;

use crate::shape::signed;
use crate::{DType, Error, Result, Value, ops};

const F32: refrain::DType = refrain::DType::F32;
const OP: &str = "gated_delta_update";
/// Maximum number of steps that one kernel computes: software drivers bound the iterations of a loop.
const MAX_STEPS: usize = 512;

/// The gated delta rule over T steps: for each step, S ← γ S + β (v − γ S k) kᵀ and y = S q. q and k are
/// `[B, T, HK, DK]`, v is `[B, T, H, DV]`, γ `[B, T, H]` or `[B, T, H, DK]`, β `[B, T, H]`, the state `[B, H, DV, DK]` in
/// f32 (zeros without one). Where the mask `[B, T]` is false, a step leaves the state as it is, and what it returns
/// means nothing. Returns y `[B, T, H, DV]` in q's dtype and the last state.
///
/// # Errors
/// Fails if shapes do not fit.
pub fn gated_delta_update(
    [q, k, v]: [&Value; 3],
    gamma: &Value,
    beta: &Value,
    state: Option<&Value>,
    mask: Option<&Value>,
) -> Result<(Value, Value)> {
    let (&[batch, steps, key_heads, key_dim], &[.., heads, value_dim]) = (q.shape(), v.shape()) else {
        return Err(Error::value(format!("[{OP}] q, k and v must have four dimensions.")));
    };
    let is_of = |x: &Value, last: &[usize]| *x.shape() == [&[batch, steps][..], last].concat();
    let fits = key_heads > 0
        && heads.is_multiple_of(key_heads)
        && is_of(k, &[key_heads, key_dim])
        && is_of(v, &[heads, value_dim])
        && is_of(beta, &[heads])
        && (is_of(gamma, &[heads]) || is_of(gamma, &[heads, key_dim]))
        && mask.is_none_or(|mask| is_of(mask, &[]));
    let state_shape = [batch, heads, value_dim, key_dim];
    if !fits || state.is_some_and(|state| *state.shape() != state_shape) {
        return Err(Error::value(format!(
            "[{OP}] Shapes of q, k, v, gates and state do not fit."
        )));
    }
    let all = [q, k, v, gamma, beta];
    let is_for_kernel = gamma.ndim() == 3 && all.iter().all(|x| x.dtype().is_floating() && x.size() > 0);
    if is_for_kernel {
        let rule = GatedDelta {
            has_state: state.is_some(),
            dtype: q.stored(),
        };
        let inputs: Vec<&Array> = (all.into_iter().chain(state).chain(mask)).map(Value::array).collect();
        let results = [(&[batch, steps, heads, value_dim][..], q.stored()), (&state_shape, F32)];
        let mut made = Array::composed_results(rule, &inputs, &results);
        let (state, y) = (made.pop(), made.pop());
        let both = y.zip(state).expect("two results");
        return Ok((Value::of(both.0)?.labelled(q.dtype()), Value::of(both.1)?));
    }
    let state = match state {
        Some(state) => state.array().astype(F32),
        None => Array::zeros(q.array().device(), F32, &state_shape),
    };
    let (y, state) = step_by_step([q, k, v], gamma, beta, state, mask)?;
    Ok((Value::of(y)?.cast(q.dtype())?, Value::of(state)?))
}

/// (q, k, v, γ, β, {state}, {mask}) → outputs and the last state, by the kernel, which has one decay per head.
#[derive(Hash, Debug)]
struct GatedDelta {
    has_state: bool,
    /// The dtype of the outputs.
    dtype: refrain::DType,
}

impl Composite for GatedDelta {
    fn name(&self) -> &'static str {
        OP
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], integer: Option<&Array>) -> Array {
        self.compose_results(inputs, integer).swap_remove(0)
    }

    fn compose_results(&self, inputs: &[Array], _integer: Option<&Array>) -> Vec<Array> {
        let [q, k, v, gamma, beta, rest @ ..] = inputs else {
            unreachable!("there are five arrays and more")
        };
        let (state, mask) = match rest {
            [state, mask @ ..] if self.has_state => (state.astype(F32), mask.first()),
            mask => {
                let shape = [q.dim(0), v.dim(2), v.dim(3), q.dim(3)];
                (Array::zeros(q.device(), F32, &shape), mask.first())
            }
        };
        let (outputs, state) = by_kernel([q, k, v, gamma, beta], state, mask);
        vec![outputs.astype(self.dtype), state]
    }
}

/// Outputs and the last state.
fn by_kernel([q, k, v, gamma, beta]: [&Array; 5], mut state: Array, mask: Option<&Array>) -> (Array, Array) {
    let (device, batch, steps) = (q.device(), q.dim(0), q.dim(1));
    // A masked step is padding, which has a negative position. The state continues at positions above 0.
    let positions = mask.map(|mask| {
        let next = Array::full(device, refrain::DType::I32, &[batch, steps], 1);
        mask.astype(F32).ne(0.0).select(&next, &-&next)
    });
    let mut outputs = Vec::new();
    for first in (0..steps).step_by(MAX_STEPS) {
        let count = (steps - first).min(MAX_STEPS);
        // All tokens on one axis.
        let flat = |x: &Array| {
            let part = if count == steps {
                x.clone()
            } else {
                x.slice(1, first, first + count)
            };
            let shape = [&[batch * count][..], &part.shape()[2..]].concat();
            part.reshape(&signed(&shape))
        };
        let [q, k, v, gamma, beta] = [q, k, v, gamma, beta].map(flat);
        let tokens = batch * count;
        // Kernels read positions and sequences one by one, so that these are no broadcast numbers.
        let next = || Array::arange(device, refrain::DType::I32, tokens) + 1;
        let positions = positions.as_ref().map_or_else(next, flat);
        let token = Array::arange(device, refrain::DType::U32, tokens);
        let first = &token - &(&token % count as u32);
        let sequences = (first / count as u32).round().astype(refrain::DType::U32);
        let gates = [&gamma, &beta];
        let (y, last) = gated_delta_from([&q, &k, &v], gates, [&positions, &sequences], &state);
        outputs.push(y.reshape(&signed(&[batch, count, v.dim(1), v.dim(2)])));
        state = last;
    }
    let y = match &outputs[..] {
        [all] => all.clone(),
        _ => refrain::concatenate(&outputs.iter().collect::<Vec<_>>(), 1),
    };
    (y, state)
}

/// Outputs and the last state, composed of arrays for each step.
fn step_by_step(
    [q, k, v]: [&Value; 3],
    gamma: &Value,
    beta: &Value,
    mut current: Array,
    mask: Option<&Value>,
) -> Result<(Array, Array)> {
    let (&[b, t, hk, dk], &[.., h, dv]) = (q.shape(), v.shape()) else {
        unreachable!("checked by the caller")
    };
    let heads = |x: &Value| -> Result<Value> { ops::repeat(&x.cast(DType::F32)?, (h / hk) as i64, Some(2)) };
    let (queries, keys, values) = (heads(q)?, heads(k)?, v.cast(DType::F32)?);
    let at = |x: &Value, step: usize, shape: &[usize]| -> Result<Array> {
        let one = x.array().astype(F32).slice(1, step, step + 1);
        Ok(Value::of(one.reshape(&signed(shape)))?.array().clone())
    };
    let mut outputs = Vec::with_capacity(t);
    for step in 0..t {
        let row = |x: &Value| at(x, step, &[b, h, 1, dk]);
        let (query, key) = (row(&queries)?, row(&keys)?);
        let value = at(&values, step, &[b, h, dv, 1])?;
        let decay = if gamma.ndim() == 4 {
            row(gamma)?
        } else {
            at(gamma, step, &[b, h, 1, 1])?
        };
        let rate = at(beta, step, &[b, h, 1, 1])?;
        let kept = &current * &decay;
        let recalled = (&kept * &key).sum(refrain::Axes::keepdims(&[-1]));
        let next = &kept + &((value - recalled) * rate) * &key;
        let next = match mask {
            Some(mask) => at(mask, step, &[b, 1, 1, 1])?.ne(0.0).select(&next, &current),
            None => next,
        };
        outputs.push((&next * &query).sum(&[-1]));
        current = next;
    }
    let steps: Vec<&Array> = outputs.iter().collect();
    let y = if steps.is_empty() {
        Array::zeros(q.array().device(), F32, &[b, 0, h, dv])
    } else {
        refrain::stack(&steps, 1)
    };
    Ok((y, current))
}
