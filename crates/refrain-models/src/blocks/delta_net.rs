//! Gated DeltaNet: linear attention with a decaying recurrent state.

use refrain::{Array, DType, fast};
use refrain_formats::RowOrder;

use super::{Linear, Norm};
use crate::config::{DeltaNetConfig, ModelConfig};
use crate::tensors::TensorTable;
use crate::{Batch, Error, Loader, RecurrentState};

/// Epsilon of the L2 norm of queries and keys.
const EPS: f32 = 1e-6;

/// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464), as in Qwen3-Next and Qwen3.5. Each token decays the recurrent
/// state S and corrects it: S ← αS + β(v − αS·k)kᵀ.
pub struct DeltaNet {
    qkv: Linear,
    z: Linear,
    a: Linear,
    b: Linear,
    conv: Array,
    /// −exp(A): decay rate of each head.
    neg_exp_a: Array,
    dt_bias: Array,
    norm: Norm,
    out: Linear,
    /// Column order of `out_proj`.
    out_columns: RowOrder,
    sizes: DeltaNetConfig,
}

impl DeltaNet {
    /// Lists the tensors of a layer.
    pub fn tensors(layer: &mut TensorTable, config: &ModelConfig, sizes: &DeltaNetConfig) {
        let (hidden, heads, values) = (
            config.hidden_size,
            sizes.value_heads,
            sizes.value_heads * sizes.value_dim,
        );
        let channels = sizes.channels();
        let head_order = sizes.tiled(0, 1);
        let value_order = sizes.tiled(0, sizes.value_dim);
        let channel_order = sizes.tiled(channels - values, sizes.value_dim);
        layer.add(["linear_attn.A_log", "ssm_a"], &[heads]).gguf_rows = head_order;
        layer.add(["linear_attn.dt_bias", "ssm_dt.bias"], &[heads]).gguf_rows = head_order;
        layer.norm(["linear_attn.norm", "ssm_norm"], sizes.value_dim);
        let mut matrix = |names, shape: [usize; 2], rows| layer.linear(names, shape, false, rows);
        matrix(
            ["linear_attn.conv1d", "ssm_conv1d"],
            [channels, sizes.conv_kernel],
            channel_order,
        );
        matrix(
            ["linear_attn.in_proj_qkv", "attn_qkv"],
            [channels, hidden],
            channel_order,
        );
        matrix(["linear_attn.in_proj_z", "attn_gate"], [values, hidden], value_order);
        matrix(["linear_attn.in_proj_a", "ssm_alpha"], [heads, hidden], head_order);
        matrix(["linear_attn.in_proj_b", "ssm_beta"], [heads, hidden], head_order);
        let out = layer.with_suffix(["linear_attn.out_proj", "ssm_out"], ".weight", &[hidden, values]);
        out.gguf_columns = value_order;
    }

    /// Loads `{name}.in_proj_qkv`, `in_proj_z`, `in_proj_a`, `in_proj_b`, `conv1d`, `A_log`, `dt_bias`, `norm` and
    /// `out_proj`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, sizes: &DeltaNetConfig) -> Result<DeltaNet, Error> {
        let hidden = loader.config.hidden_size;
        let (heads, inner) = (sizes.value_heads, sizes.value_heads * sizes.value_dim);
        let linear = |part: &str, outputs, inputs| loader.linear(&format!("{name}.{part}"), outputs, inputs, false);
        let decay = loader.vector(&format!("{name}.A_log"), heads)?.astype(DType::F32);
        let neg_exp_a = if sizes.holds_decay_rates { decay } else { -decay.exp() };
        neg_exp_a.eval()?;
        Ok(DeltaNet {
            qkv: linear("in_proj_qkv", sizes.channels(), hidden)?,
            z: linear("in_proj_z", inner, hidden)?,
            a: linear("in_proj_a", heads, hidden)?,
            b: linear("in_proj_b", heads, hidden)?,
            conv: loader.array(&format!("{name}.conv1d.weight"), &[sizes.channels(), sizes.conv_kernel])?,
            neg_exp_a,
            dt_bias: loader.vector(&format!("{name}.dt_bias"), heads)?,
            norm: loader.norm_without_offset(&format!("{name}.norm"), sizes.value_dim)?,
            out: linear("out_proj", hidden, inner)?,
            out_columns: loader.column_order(&format!("{name}.out_proj.weight")),
            sizes: sizes.clone(),
        })
    }

    /// Allocates zeroed states for `sequences` sequences.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new_state(&self, sequences: usize) -> Result<RecurrentState, refrain::Error> {
        let sizes = &self.sizes;
        let state = |shape: &[usize]| Array::state(self.out.device(), DType::F32, shape);
        Ok(RecurrentState::new(
            state(&[sequences, sizes.conv_kernel - 1, sizes.channels()])?,
            state(&[sequences, sizes.value_heads, sizes.value_dim, sizes.key_dim])?,
        ))
    }

    /// x `[T, hidden]` → `[T, hidden]`. Updates the state with all tokens, unless that is deferred.
    pub fn forward(&self, x: &Array, batch: &Batch, state: &mut RecurrentState) -> Array {
        let qkv = state.convolve(&self.qkv.forward(x), &self.conv, batch).silu();
        let [q, k, v] = self.split(&qkv);
        let scale = (self.sizes.key_dim as f32).powf(-0.5);
        let (q, k) = (l2_norm(&q) * scale, l2_norm(&k));
        let decay = (softplus(&(self.a.forward(x) + &self.dt_bias)) * &self.neg_exp_a).exp();
        let beta = self.b.forward(x).sigmoid();
        let out = state.delta_rule([&q, &k, &v], [&decay, &beta], batch);
        let z = self.z.forward(x);
        let inner = z.dim(-1) as isize;
        let normed = self.norm.forward(&out).reshape(&[-1, inner]);
        self.out.forward(&self.permute_columns(normed * z.silu()))
    }

    /// Permutes x `[T, value heads · E]` to the column order of `out_proj`.
    fn permute_columns(&self, x: Array) -> Array {
        let RowOrder::Tiled {
            groups, heads, size, ..
        } = self.out_columns
        else {
            return x;
        };
        let shape = [groups, heads, size].map(|n| n as isize);
        let heads = x.reshape(&[-1, shape[0], shape[1], shape[2]]).swap_axes(1, 2);
        heads.reshape(&[-1, shape.into_iter().product()])
    }

    /// Splits the convolution's output into queries and keys `[T, key heads, D]` and values `[T, value heads, E]`.
    fn split(&self, qkv: &Array) -> [Array; 3] {
        let sizes = &self.sizes;
        let (keys, values) = ([sizes.key_heads, sizes.key_dim], [sizes.value_heads, sizes.value_dim]);
        let mut start = 0;
        [keys, keys, values].map(|[heads, n]| {
            let part = qkv.slice(-1, start, start + heads * n);
            start += heads * n;
            part.reshape(&[-1, heads as isize, n as isize])
        })
    }
}

/// L2 norm: x / √(Σx² + ε) over the last axis, computed as an RMS norm.
fn l2_norm(x: &Array) -> Array {
    let n = x.dim(-1) as f32;
    fast::rms_norm(x, None, EPS / n) * n.powf(-0.5)
}

/// log(1 + eˣ), in a form that does not overflow.
fn softplus(x: &Array) -> Array {
    let rest = (-x.abs()).exp() + 1.0;
    x.maximum(0) + rest.log()
}
