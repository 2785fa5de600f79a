use refrain::{Array, DType, fast};
use refrain_formats::RowOrder;

use super::{BlockNorm, Linear};
use crate::config::{DeltaNets, ModelConfig};
use crate::tensors::Table;
use crate::{Batch, Error, Loader, Recurrence};

/// Added to the squared length of queries and keys.
const EPS: f32 = 1e-6;

/// A gated delta net (Yang et al. 2024, arXiv:2412.06464), as Qwen3-Next and Qwen3.5 have it: linear
/// attention over a memory that each token lets fade and corrects.
pub struct DeltaNet {
    qkv: Linear,
    z: Linear,
    a: Linear,
    b: Linear,
    conv: Array,
    /// −exp(A): how fast each head forgets.
    rate: Array,
    dt_bias: Array,
    norm: BlockNorm,
    out: Linear,
    /// The order of its columns.
    out_columns: RowOrder,
    sizes: DeltaNets,
}

impl DeltaNet {
    /// Its tensors in a layer.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, sizes: &DeltaNets) {
        let (hidden, heads, values) = (
            config.hidden_size,
            sizes.value_heads,
            sizes.value_heads * sizes.value_dim,
        );
        let channels = sizes.channels();
        let of_heads = sizes.tiled(0, 1);
        let of_values = sizes.tiled(0, sizes.value_dim);
        let of_channels = sizes.tiled(channels - values, sizes.value_dim);
        layer.add(["linear_attn.A_log", "ssm_a"], &[heads]).rows = of_heads;
        layer.add(["linear_attn.dt_bias", "ssm_dt.bias"], &[heads]).rows = of_heads;
        layer.norm(["linear_attn.norm", "ssm_norm"], sizes.value_dim);
        let mut matrix = |names, shape: [usize; 2], rows| layer.linear(names, shape, false, rows);
        matrix(
            ["linear_attn.conv1d", "ssm_conv1d"],
            [channels, sizes.taps],
            of_channels,
        );
        matrix(["linear_attn.in_proj_qkv", "attn_qkv"], [channels, hidden], of_channels);
        matrix(["linear_attn.in_proj_z", "attn_gate"], [values, hidden], of_values);
        matrix(["linear_attn.in_proj_a", "ssm_alpha"], [heads, hidden], of_heads);
        matrix(["linear_attn.in_proj_b", "ssm_beta"], [heads, hidden], of_heads);
        let out = layer.part(["linear_attn.out_proj", "ssm_out"], ".weight", &[hidden, values]);
        out.columns = of_values;
    }

    /// `{name}.in_proj_qkv`, `in_proj_z`, `in_proj_a`, `in_proj_b`, `conv1d`, `A_log`, `dt_bias`, `norm` and
    /// `out_proj`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, sizes: &DeltaNets) -> Result<DeltaNet, Error> {
        let hidden = loader.config.hidden_size;
        let (heads, inner) = (sizes.value_heads, sizes.value_heads * sizes.value_dim);
        let linear = |part: &str, outputs, inputs| loader.linear(&format!("{name}.{part}"), outputs, inputs, false);
        let decay = loader.vector(&format!("{name}.A_log"), heads)?.astype(DType::F32);
        let rate = if sizes.rates { decay } else { -decay.exp() };
        rate.eval()?;
        Ok(DeltaNet {
            qkv: linear("in_proj_qkv", sizes.channels(), hidden)?,
            z: linear("in_proj_z", inner, hidden)?,
            a: linear("in_proj_a", heads, hidden)?,
            b: linear("in_proj_b", heads, hidden)?,
            conv: loader.array(&format!("{name}.conv1d.weight"), &[sizes.channels(), sizes.taps])?,
            rate,
            dt_bias: loader.vector(&format!("{name}.dt_bias"), heads)?,
            norm: loader.plain_norm(&format!("{name}.norm"), sizes.value_dim)?,
            out: linear("out_proj", hidden, inner)?,
            out_columns: loader.column_order(&format!("{name}.out_proj.weight")),
            sizes: sizes.clone(),
        })
    }

    /// What it remembers of nothing yet, for each of `sequences` sequences.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new_state(&self, sequences: usize) -> Result<Recurrence, refrain::Error> {
        let sizes = &self.sizes;
        let state = |shape: &[usize]| Array::state(self.out.device(), DType::F32, shape);
        Ok(Recurrence {
            window: state(&[sequences, sizes.taps - 1, sizes.channels()])?,
            state: state(&[sequences, sizes.value_heads, sizes.value_dim, sizes.key_dim])?,
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`; the states take in all tokens.
    pub fn forward(&self, x: &Array, batch: &Batch, state: &mut Recurrence) -> Array {
        let mixed = state.convolve(&self.qkv.forward(x), &self.conv, batch).silu();
        let [q, k, v] = self.split(&mixed);
        let scale = (self.sizes.key_dim as f32).powf(-0.5);
        let (q, k) = (unit(&q) * scale, unit(&k));
        let decay = (softplus(&(self.a.forward(x) + &self.dt_bias)) * &self.rate).exp();
        let beta = self.b.forward(x).sigmoid();
        let remembered = state.remember([&q, &k, &v], [&decay, &beta], batch);
        let z = self.z.forward(x);
        let inner = z.dim(-1) as isize;
        let normed = self.norm.forward(&remembered).reshape(&[-1, inner]);
        self.out.forward(&self.in_order_of_columns(normed * z.silu()))
    }

    /// x `[T, value heads · E]` in the order that the last projection has its columns in.
    fn in_order_of_columns(&self, x: Array) -> Array {
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

    /// Queries and keys `[T, key heads, D]` and values `[T, value heads, E]`.
    fn split(&self, mixed: &Array) -> [Array; 3] {
        let sizes = &self.sizes;
        let (keys, values) = ([sizes.key_heads, sizes.key_dim], [sizes.value_heads, sizes.value_dim]);
        let mut start = 0;
        [keys, keys, values].map(|[heads, n]| {
            let part = mixed.slice(-1, start, start + heads * n);
            start += heads * n;
            part.reshape(&[-1, heads as isize, n as isize])
        })
    }
}

/// x / √(Σx² + ε) over the last dimension, by way of the mean of squares.
fn unit(x: &Array) -> Array {
    let n = x.dim(-1) as f32;
    fast::rms_norm(x, None, EPS / n) * n.powf(-0.5)
}

/// log(1 + eˣ), which does not overflow in this form.
fn softplus(x: &Array) -> Array {
    let rest = (-x.abs()).exp() + 1.0;
    x.maximum(0) + rest.log()
}
