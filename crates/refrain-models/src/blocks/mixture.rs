use refrain::Array;

use super::mlp::activate;
use super::{Linear, Mlp, MlpStyle, Router, Weight};
use crate::config::{Activation, MixtureConfig, ModelConfig};
use crate::tensors::Table;
use crate::{Error, Loader};

/// A mixture of experts (Shazeer et al. 2017, arXiv:1701.06538): each token is computed by the few
/// feed-forward networks that a router scores highest, their results weighted by its scores, and perhaps by one
/// that all tokens share.
pub struct Mixture {
    router: Router,
    gate_up: GateUp,
    down: Weight,
    shared: Option<SharedExpert>,
    inner: usize,
    hidden: usize,
    activation: Activation,
}

/// What computes every token, behind a gate of its own.
struct SharedExpert {
    expert: Mlp,
    gate: Linear,
}

/// The matrices of all experts.
enum GateUp {
    Apart(Weight, Weight),
    /// For each expert the rows of the gate, then those of up.
    Fused(Weight),
}

impl Mixture {
    /// Its tensors in a layer.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, sizes: &MixtureConfig) {
        let (hidden, inner, experts) = (config.hidden_size, sizes.intermediate_size, sizes.experts);
        layer.part(["mlp.gate", "ffn_gate_inp"], ".weight", &[experts, hidden]);
        layer.add(
            ["mlp.experts.down_proj", "ffn_down_exps.weight"],
            &[experts, hidden, inner],
        );
        // Together as transformers has them, or apart as mlx-lm and GGUF do.
        let apart = config.quantisation.is_some();
        layer
            .add(
                ["mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"],
                &[experts, 2 * inner, hidden],
            )
            .needed = !apart;
        for names in [
            ["mlp.experts.gate_proj", "ffn_gate_exps.weight"],
            ["mlp.experts.up_proj", "ffn_up_exps.weight"],
        ] {
            layer.add(names, &[experts, inner, hidden]).needed = apart;
        }
        let Some(shared) = sizes.shared_intermediate_size else {
            return;
        };
        let mut matrix = |names, shape: [usize; 2]| {
            layer.part(names, ".weight", &shape);
        };
        matrix(["mlp.shared_expert_gate", "ffn_gate_inp_shexp"], [1, hidden]);
        matrix(["mlp.shared_expert.gate_proj", "ffn_gate_shexp"], [shared, hidden]);
        matrix(["mlp.shared_expert.up_proj", "ffn_up_shexp"], [shared, hidden]);
        matrix(["mlp.shared_expert.down_proj", "ffn_down_shexp"], [hidden, shared]);
    }

    /// `{name}.gate` (the router), `{name}.experts` with `gate_up_proj` or `gate_proj` and `up_proj`, and
    /// `down_proj`; `{name}.shared_expert` and `shared_expert_gate` if there are such.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, sizes: &MixtureConfig) -> Result<Mixture, Error> {
        let (hidden, inner) = (loader.config.hidden_size, sizes.intermediate_size);
        let all = format!("{name}.experts");
        let experts = |part: &str, shape| loader.experts(&all, part, sizes.experts, shape);
        Ok(Mixture {
            router: Router::load(loader, &format!("{name}.gate"), sizes.experts, &sizes.router)?,
            gate_up: match loader.has(&format!("{all}.gate_up_proj")) {
                true => GateUp::Fused(experts("gate_up_proj", [2 * inner, hidden])?),
                false => GateUp::Apart(
                    experts("gate_proj", [inner, hidden])?,
                    experts("up_proj", [inner, hidden])?,
                ),
            },
            down: experts("down_proj", [hidden, inner])?,
            shared: match sizes.shared_intermediate_size {
                Some(width) => Some(SharedExpert {
                    expert: Mlp::of_width(loader, &format!("{name}.shared_expert"), width, MlpStyle::Gated)?,
                    gate: loader.linear(&format!("{name}.shared_expert_gate"), 1, hidden, false)?,
                }),
                None => None,
            },
            inner,
            hidden,
            activation: loader.config.activation,
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        let [experts, weights] = self.router.forward(x);
        let each = x.expand_dims(1);
        let [gate, up] = match &self.gate_up {
            GateUp::Apart(gate, up) => [gate, up].map(|w| w.expert_matmul(&each, &experts, self.inner)),
            GateUp::Fused(both) => both.expert_matmul(&each, &experts, 2 * self.inner).split(-1),
        };
        let inner = activate(&gate, self.activation) * up;
        let routed = self.down.expert_matmul(&inner, &experts, self.hidden) * weights.expand_dims(2);
        let routed = routed.sum(&[1]);
        match &self.shared {
            Some(shared) => routed + shared.gate.forward(x).sigmoid() * shared.expert.forward(x),
            None => routed,
        }
    }
}
