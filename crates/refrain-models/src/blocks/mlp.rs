use refrain::Array;
use refrain_formats::RowOrder;

use super::Linear;
use crate::config::{Activation, ModelConfig};
use crate::tensors::Table;
use crate::{Error, Loader};

/// How the inner values of a feed-forward network are projected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlpStyle {
    /// `gate_proj` and `up_proj`.
    Gated,
    /// `gate_up_proj`: the rows of the gate, then those of up.
    Fused,
    /// `c_fc` without a gate, and `c_proj` behind the activation.
    Plain,
}

/// A feed-forward network: down(activation(gate(x)) · up(x)) (Shazeer 2020, arXiv:2002.05202), or without a gate
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
    /// Its tensors in a layer.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, style: MlpStyle) {
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

    /// The projections as `style` names them under `{name}`, and `down_proj`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, style: MlpStyle) -> Result<Mlp, Error> {
        Mlp::of_width(loader, name, loader.config.feed_forward.intermediate_size, style)
    }

    /// As [`Mlp::load`], `inner` wide inside.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn of_width(loader: &Loader<'_>, name: &str, inner: usize, style: MlpStyle) -> Result<Mlp, Error> {
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

/// What goes into the last projection behind a gate.
pub(super) fn gated(gate: &Array, up: &Array, activation: Activation) -> Array {
    let up = match activation {
        Activation::ClampedSwiglu => up.minimum(CLAMPED).maximum(-CLAMPED) + 1.0,
        _ => up.clone(),
    };
    activate(gate, activation) * up
}

/// Within which clamped values stay.
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
    // (1 + tanh(z)) / 2 is sigmoid(2z), which keeps small values where x is far below zero.
    let z = x * &(x * x * 0.044715 + 1.0) * (2.0 * (2.0 / std::f32::consts::PI).sqrt());
    x * z.sigmoid()
}
