use refrain::Array;
use refrain_formats::RowOrder;

use super::Linear;
use crate::config::{Activation, ModelConfig};
use crate::tensors::Table;
use crate::{Error, Loader};

/// The gated feed-forward network: down(activation(gate(x)) · up(x)) (Shazeer 2020).
pub struct Mlp {
    gate_up: GateUp,
    down: Linear,
    activation: Activation,
}

enum GateUp {
    Apart(Linear, Linear),
    /// The rows of the gate, then those of up.
    Fused(Linear),
}

impl Mlp {
    /// Its tensors in a layer.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, fused: bool) {
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        let mut add = |names, shape| layer.linear(names, shape, bias, RowOrder::AsStored);
        if fused {
            add(["mlp.gate_up_proj", "ffn_up"], [2 * inner, hidden]);
        } else {
            add(["mlp.gate_proj", "ffn_gate"], [inner, hidden]);
            add(["mlp.up_proj", "ffn_up"], [inner, hidden]);
        }
        add(["mlp.down_proj", "ffn_down"], [hidden, inner]);
    }

    /// `{name}.gate_proj` and `up_proj`, or `gate_up_proj` if `fused`, and `down_proj`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, fused: bool) -> Result<Mlp, Error> {
        Mlp::of_width(loader, name, loader.config.intermediate_size, fused)
    }

    /// As [`Mlp::load`], `inner` wide inside.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn of_width(loader: &Loader<'_>, name: &str, inner: usize, fused: bool) -> Result<Mlp, Error> {
        let config = loader.config;
        let (hidden, bias) = (config.hidden_size, config.mlp_bias);
        let project = |part: &str, outputs: usize| loader.linear(&format!("{name}.{part}"), outputs, hidden, bias);
        let gate_up = match fused {
            true => GateUp::Fused(project("gate_up_proj", 2 * inner)?),
            false => GateUp::Apart(project("gate_proj", inner)?, project("up_proj", inner)?),
        };
        Ok(Mlp {
            gate_up,
            down: loader.linear(&format!("{name}.down_proj"), hidden, inner, bias)?,
            activation: config.activation,
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        let [gate, up] = match &self.gate_up {
            GateUp::Apart(gate, up) => [gate.forward(x), up.forward(x)],
            GateUp::Fused(both) => both.forward(x).split(-1),
        };
        self.down.forward(&(activate(&gate, self.activation) * up))
    }
}

/// The gate's activation.
pub(super) fn activate(gate: &Array, activation: Activation) -> Array {
    match activation {
        Activation::Silu => gate.silu(),
        Activation::GeluTanh => gelu_tanh(gate),
    }
}

/// x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2 (Hendrycks & Gimpel 2016, arXiv:1606.08415).
fn gelu_tanh(x: &Array) -> Array {
    // (1 + tanh(z)) / 2 is sigmoid(2z), which keeps small values where x is far below zero.
    let z = x * &(x * x * 0.044715 + 1.0) * (2.0 * (2.0 / std::f32::consts::PI).sqrt());
    x * z.sigmoid()
}
