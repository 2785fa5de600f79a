use refrain::Array;
use refrain_formats::RowOrder;
use refrain_lm::expert_matmul;

use super::mlp::gated;
use super::{Linear, Mlp, MlpStyle, Router, Weight};
use crate::config::{Activation, MixtureConfig, MixtureStyle, ModelConfig};
use crate::tensors::{Names, Table};
use crate::{Error, Loader};

/// A mixture of experts (Shazeer et al. 2017, arXiv:1701.06538): each token is computed by the few
/// feed-forward networks that a router scores highest, their results weighted by its scores, and perhaps by one
/// that all tokens share.
pub struct Mixture {
    router: Router,
    gate_up: GateUp,
    down: Experts,
    shared: Option<SharedExpert>,
    activation: Activation,
}

/// What computes every token, perhaps behind a gate of its own.
struct SharedExpert {
    expert: Mlp,
    gate: Option<Linear>,
}

impl SharedExpert {
    fn load(loader: &Loader<'_>, layer: &str, width: usize, style: &MixtureStyle) -> Result<SharedExpert, Error> {
        let name = format!("{layer}.{}", style.shared);
        Ok(SharedExpert {
            expert: Mlp::of_width(loader, &name, width, MlpStyle::Gated)?,
            gate: if style.shared_gate {
                Some(loader.linear(&format!("{name}_gate"), 1, loader.config.hidden_size, false)?)
            } else {
                None
            },
        })
    }

    fn forward(&self, x: &Array) -> Array {
        match &self.gate {
            Some(gate) => gate.forward(x).sigmoid() * self.expert.forward(x),
            None => self.expert.forward(x),
        }
    }
}

/// A projection of all experts, and perhaps its biases `[E, outputs]`.
struct Experts {
    weights: Weight,
    biases: Option<Array>,
    outputs: usize,
}

impl Experts {
    /// x `[T, 1 or U, K]` and experts `[T, U]` → `[T, U, outputs]`, without biases.
    fn products(&self, x: &Array, experts: &Array) -> Array {
        expert_matmul(x, experts, &self.weights, self.outputs)
    }

    /// The same with biases.
    fn forward(&self, x: &Array, experts: &Array) -> Array {
        match &self.biases {
            Some(biases) => self.products(x, experts) + biases.take(experts, 0),
            None => self.products(x, experts),
        }
    }
}

/// What gate and up are made by.
enum GateUp {
    Apart(Experts, Experts),
    /// For each expert the rows of the gate, then those of up.
    Fused(Experts),
}

/// Gate and up together, each of them, and what comes behind.
const EXPERTS: [Names; 4] = [
    ["mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"],
    ["mlp.experts.gate_proj", "ffn_gate_exps.weight"],
    ["mlp.experts.up_proj", "ffn_up_exps.weight"],
    ["mlp.experts.down_proj", "ffn_down_exps.weight"],
];
/// Their biases.
const BIASES: [Names; 4] = [
    ["mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"],
    ["mlp.experts.gate_proj_bias", "ffn_gate_exps.bias"],
    ["mlp.experts.up_proj_bias", "ffn_up_exps.bias"],
    ["mlp.experts.down_proj_bias", "ffn_down_exps.bias"],
];

/// How transformers has all experts' matrices `[rows, columns]`.
fn by_columns(style: &MixtureStyle, rows: usize, columns: usize, interleaved: bool) -> RowOrder {
    if style.transposed {
        RowOrder::Transposed {
            rows,
            columns,
            interleaved,
        }
    } else {
        RowOrder::AsStored
    }
}

impl Mixture {
    /// Its tensors in a layer.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, sizes: &MixtureConfig) {
        let (hidden, inner, experts) = (config.hidden_size, sizes.intermediate_size, sizes.experts);
        let style = sizes.style;
        let router = [style.router, "ffn_gate_inp"];
        layer.part(router, ".weight", &[experts, hidden]);
        // Together as transformers has them, or apart as mlx-lm and GGUF do.
        let apart = config.quantisation.is_some();
        let [gate_up, gate, up, down] = EXPERTS;
        layer.add(down, &[experts, hidden, inner]).in_directory = by_columns(style, hidden, inner, false);
        let both = layer.add(gate_up, &[experts, 2 * inner, hidden]);
        (both.needed, both.in_directory) = (!apart, by_columns(style, 2 * inner, hidden, true));
        for names in [gate, up] {
            layer.add(names, &[experts, inner, hidden]).needed = apart;
        }
        if style.biases {
            let [gate_up, gate, up, down] = BIASES;
            layer.part(router, ".bias", &[experts]);
            layer.add(down, &[experts, hidden]);
            let both = layer.add(gate_up, &[experts, 2, inner]);
            (both.needed, both.in_directory) = (!apart, by_columns(style, 2 * inner, 1, true));
            for names in [gate, up] {
                layer.add(names, &[experts, inner]).needed = apart;
            }
        }
        if sizes.router.corrected {
            let names = [style.router, "exp_probs_b"];
            let row = layer.part(names, ".bias", &[experts]);
            row.name = row.name.replace(".bias", ".e_score_correction_bias");
        }
        let Some(shared) = sizes.shared_intermediate_size else {
            return;
        };
        let mut matrix = |part: &str, gguf: &str, shape: [usize; 2]| {
            layer.part([&format!("{}{part}", style.shared), gguf], ".weight", &shape);
        };
        if style.shared_gate {
            matrix("_gate", "ffn_gate_inp_shexp", [1, hidden]);
        }
        matrix(".gate_proj", "ffn_gate_shexp", [shared, hidden]);
        matrix(".up_proj", "ffn_up_shexp", [shared, hidden]);
        matrix(".down_proj", "ffn_down_shexp", [hidden, shared]);
    }

    /// The router, `mlp.experts` with `gate_up_proj` or `gate_proj` and `up_proj`, and `down_proj`, with their biases if
    /// the family has some; the shared expert and its gate if there are such, as the style names them: all in `layer`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, layer: &str, sizes: &MixtureConfig) -> Result<Mixture, Error> {
        let (hidden, inner) = (loader.config.hidden_size, sizes.intermediate_size);
        let all = format!("{layer}.mlp.experts");
        let matrices = |part: &str, shape| loader.experts(&all, part, sizes.experts, shape);
        let biases = |part: &str, shape: &[usize]| {
            if sizes.style.biases {
                loader.array(&format!("{all}.{part}_bias"), shape).map(Some)
            } else {
                Ok(None)
            }
        };
        let experts = |part: &str, shape: [usize; 2]| {
            Ok::<_, Error>(Experts {
                outputs: shape[0],
                weights: matrices(part, shape)?,
                biases: biases(part, &[sizes.experts, shape[0]])?,
            })
        };
        Ok(Mixture {
            router: Router::load(loader, &format!("{layer}.{}", sizes.style.router), sizes)?,
            gate_up: if loader.has(&format!("{all}.gate_up_proj")) {
                GateUp::Fused(Experts {
                    outputs: 2 * inner,
                    weights: matrices("gate_up_proj", [2 * inner, hidden])?,
                    biases: biases("gate_up_proj", &[sizes.experts, 2, inner])?
                        .map(|biases| biases.reshape(&[-1, 2 * inner as isize])),
                })
            } else {
                GateUp::Apart(
                    experts("gate_proj", [inner, hidden])?,
                    experts("up_proj", [inner, hidden])?,
                )
            },
            down: experts("down_proj", [hidden, inner])?,
            shared: match sizes.shared_intermediate_size {
                Some(width) => Some(SharedExpert::load(loader, layer, width, sizes.style)?),
                None => None,
            },
            activation: loader.config.feed_forward.activation,
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        let [experts, weights] = self.router.forward(x);
        let each = x.expand_dims(1);
        let [gate, up] = match &self.gate_up {
            GateUp::Apart(gate, up) => [gate, up].map(|matrices| matrices.forward(&each, &experts)),
            GateUp::Fused(both) => both.forward(&each, &experts).split(-1),
        };
        let inner = gated(&gate, &up, self.activation);
        let weights = weights.expand_dims(2);
        let mut routed = (self.down.products(&inner, &experts) * &weights).sum(&[1]);
        if let Some(biases) = &self.down.biases {
            routed = routed + (biases.take(&experts, 0) * &weights).sum(&[1]);
        }
        match &self.shared {
            Some(shared) => routed + shared.forward(x),
            None => routed,
        }
    }
}
