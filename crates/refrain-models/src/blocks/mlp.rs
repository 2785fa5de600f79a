//! The dense feed-forward network.

use refrain::Array;
use refrain_formats::RowOrder;

use super::Linear;
use crate::config::{Activation, ModelConfig};
use crate::tensors::TensorTable;
use crate::{Error, Loader};

/// Layout of an MLP's input projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlpStyle {
    /// `gate_proj` and `up_proj`.
    Gated,
    /// One `gate_up_proj`: rows of the gate, then rows of up.
    Fused,
    /// `c_fc` without a gate, and `c_proj` after the activation.
    Plain,
}

/// An MLP: down(activation(gate(x)) · up(x)) (Shazeer 2020, arXiv:2002.05202), or without a gate
/// down(activation(up(x))).
pub struct Mlp {
    inner: Inner,
    down: Linear,
    activation: Activation,
}

enum Inner {
    Gated(Linear, Linear),
    Fused(Linear),
    Plain(Linear),
}

impl Mlp {
    /// Lists the tensors of a layer.
    pub fn tensors(layer: &mut TensorTable, config: &ModelConfig, style: MlpStyle) {
        let (hidden, inner, bias) = (
            config.hidden_size,
            config.feed_forward.intermediate_size,
            config.feed_forward.bias,
        );
        let mut add = |names, shape| layer.linear(names, shape, bias, RowOrder::AsStored);
        match style {
            MlpStyle::Gated => {
                add(["mlp.gate_proj", "ffn_gate"], [inner, hidden]);
                add(["mlp.up_proj", "ffn_up"], [inner, hidden]);
            }
            MlpStyle::Fused => add(["mlp.gate_up_proj", "ffn_up"], [2 * inner, hidden]),
            MlpStyle::Plain => {
                add(["mlp.c_fc", "ffn_up"], [inner, hidden]);
                return add(["mlp.c_proj", "ffn_down"], [hidden, inner]);
            }
        }
        add(["mlp.down_proj", "ffn_down"], [hidden, inner]);
    }

    /// Loads the projections named by `style` under `{name}`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, style: MlpStyle) -> Result<Mlp, Error> {
        Mlp::with_width(loader, name, loader.config.feed_forward.intermediate_size, style)
    }

    /// Loads an MLP of intermediate size `inner`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn with_width(loader: &Loader<'_>, name: &str, inner: usize, style: MlpStyle) -> Result<Mlp, Error> {
        let config = loader.config;
        let (hidden, bias) = (config.hidden_size, config.feed_forward.bias);
        let project = |part: &str, outputs: usize| loader.linear(&format!("{name}.{part}"), outputs, hidden, bias);
        let down = if style == MlpStyle::Plain {
            "c_proj"
        } else {
            "down_proj"
        };
        Ok(Mlp {
            inner: match style {
                MlpStyle::Gated => Inner::Gated(project("gate_proj", inner)?, project("up_proj", inner)?),
                MlpStyle::Fused => Inner::Fused(project("gate_up_proj", 2 * inner)?),
                MlpStyle::Plain => Inner::Plain(project("c_fc", inner)?),
            },
            down: loader.linear(&format!("{name}.{down}"), hidden, inner, bias)?,
            activation: config.feed_forward.activation,
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        let [gate, up] = match &self.inner {
            Inner::Gated(gate, up) => [gate.forward(x), up.forward(x)],
            Inner::Fused(both) => both.forward(x).split(-1),
            Inner::Plain(up) => return self.down.forward(&activate(&up.forward(x), self.activation)),
        };
        self.down.forward(&gated(&gate, &up, self.activation))
    }
}

/// activation(gate) · up: the input of the down projection.
pub(super) fn gated(gate: &Array, up: &Array, activation: Activation) -> Array {
    let up = match activation {
        Activation::ClampedSwiglu => up.minimum(CLAMPED).maximum(-CLAMPED) + 1.0,
        _ => up.clone(),
    };
    activate(gate, activation) * up
}

/// Clamping limit of [`Activation::ClampedSwiglu`].
const CLAMPED: f32 = 7.0;

fn activate(x: &Array, activation: Activation) -> Array {
    match activation {
        Activation::Silu => x.silu(),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::ClampedSwiglu => {
            let x = x.minimum(CLAMPED);
            &x * (&x * 1.702).sigmoid()
        }
    }
}

/// x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2 (Hendrycks & Gimpel 2016, arXiv:1606.08415).
fn gelu_tanh(x: &Array) -> Array {
    // (1 + tanh(z)) / 2 = sigmoid(2z), which keeps precision where x is far below zero.
    let z = x * &(x * x * 0.044715 + 1.0) * (2.0 * (2.0 / std::f32::consts::PI).sqrt());
    x * z.sigmoid()
}
