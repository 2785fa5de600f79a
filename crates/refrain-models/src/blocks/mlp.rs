use refrain::Array;

use super::Linear;
use crate::{Error, Loader};

/// The gated feed-forward network: down(silu(gate(x)) · up(x)) (Shazeer 2020).
pub struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Mlp {
    /// `{name}.gate_proj`, `up_proj` and `down_proj`.
    pub fn load(loader: &Loader<'_>, name: &str) -> Result<Mlp, Error> {
        let (hidden, inner, bias) = (
            loader.config.hidden_size,
            loader.config.intermediate_size,
            loader.config.mlp_bias,
        );
        Ok(Mlp {
            gate: loader.linear(&format!("{name}.gate_proj"), inner, hidden, bias)?,
            up: loader.linear(&format!("{name}.up_proj"), inner, hidden, bias)?,
            down: loader.linear(&format!("{name}.down_proj"), hidden, inner, bias)?,
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
    }
}
