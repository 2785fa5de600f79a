//! Mixture of experts.

use refrain::Array;
use refrain_formats::RowOrder;
use refrain_lm::expert_matmul;

use super::mlp::gated;
use super::{Linear, Mlp, MlpStyle, Router, Weight};
use crate::config::{Activation, ModelConfig, MoeConfig, MoeStyle};
use crate::tensors::{TensorNames, TensorTable};
use crate::{Error, Loader};

/// A mixture of experts (Shazeer et al. 2017, arXiv:1701.06538). A router selects the highest-scoring experts of each
/// token; the output is the sum of theirs, weighted by the scores. An optional shared expert processes every token.
pub struct Moe {
    router: Router,
    gate_up: GateUp,
    down: Experts,
    shared: Option<SharedExpert>,
    activation: Activation,
}

/// The expert of all tokens, with an optional sigmoid gate.
struct SharedExpert {
    expert: Mlp,
    gate: Option<Linear>,
}

impl SharedExpert {
    fn load(loader: &Loader<'_>, layer: &str, width: usize, style: &MoeStyle) -> Result<SharedExpert, Error> {
        let name = format!("{layer}.{}", style.shared_expert);
        Ok(SharedExpert {
            expert: Mlp::with_width(loader, &name, width, MlpStyle::Gated)?,
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

/// One projection of all experts, with optional biases `[E, outputs]`.
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

/// The gate and up projections.
enum GateUp {
    Separate(Experts, Experts),
    /// For each expert: rows of the gate, then rows of up.
    Fused(Experts),
}

/// Names of the fused gate and up projection, of each alone, and of the down projection.
const EXPERTS: [TensorNames; 4] = [
    ["mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"],
    ["mlp.experts.gate_proj", "ffn_gate_exps.weight"],
    ["mlp.experts.up_proj", "ffn_up_exps.weight"],
    ["mlp.experts.down_proj", "ffn_down_exps.weight"],
];
/// Their biases.
const BIASES: [TensorNames; 4] = [
    ["mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"],
    ["mlp.experts.gate_proj_bias", "ffn_gate_exps.bias"],
    ["mlp.experts.up_proj_bias", "ffn_up_exps.bias"],
    ["mlp.experts.down_proj_bias", "ffn_down_exps.bias"],
];

/// Order in which transformers stores the experts' matrices `[rows, columns]`.
fn expert_row_order(style: &MoeStyle, rows: usize, columns: usize, interleaved: bool) -> RowOrder {
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

impl Moe {
    /// Lists the tensors of a layer.
    pub fn tensors(layer: &mut TensorTable, config: &ModelConfig, sizes: &MoeConfig) {
        let (hidden, inner, experts) = (config.hidden_size, sizes.intermediate_size, sizes.experts);
        let style = sizes.style;
        let router = [style.router, "ffn_gate_inp"];
        layer.with_suffix(router, ".weight", &[experts, hidden]);
        // Fused as in transformers, or separate as in mlx-lm and GGUF.
        let separate = config.quantisation.is_some();
        let [gate_up, gate, up, down] = EXPERTS;
        layer.add(down, &[experts, hidden, inner]).hf_rows = expert_row_order(style, hidden, inner, false);
        let both = layer.add(gate_up, &[experts, 2 * inner, hidden]);
        (both.required, both.hf_rows) = (!separate, expert_row_order(style, 2 * inner, hidden, true));
        for names in [gate, up] {
            layer.add(names, &[experts, inner, hidden]).required = separate;
        }
        if style.biases {
            let [gate_up, gate, up, down] = BIASES;
            layer.with_suffix(router, ".bias", &[experts]);
            layer.add(down, &[experts, hidden]);
            let both = layer.add(gate_up, &[experts, 2, inner]);
            (both.required, both.hf_rows) = (!separate, expert_row_order(style, 2 * inner, 1, true));
            for names in [gate, up] {
                layer.add(names, &[experts, inner]).required = separate;
            }
        }
        if sizes.router.score_correction {
            let names = [style.router, "exp_probs_b"];
            let row = layer.with_suffix(names, ".bias", &[experts]);
            row.name = row.name.replace(".bias", ".e_score_correction_bias");
        }
        let Some(shared) = sizes.shared_intermediate_size else {
            return;
        };
        let mut matrix = |part: &str, gguf: &str, shape: [usize; 2]| {
            layer.with_suffix([&format!("{}{part}", style.shared_expert), gguf], ".weight", &shape);
        };
        if style.shared_gate {
            matrix("_gate", "ffn_gate_inp_shexp", [1, hidden]);
        }
        matrix(".gate_proj", "ffn_gate_shexp", [shared, hidden]);
        matrix(".up_proj", "ffn_up_shexp", [shared, hidden]);
        matrix(".down_proj", "ffn_down_shexp", [hidden, shared]);
    }

    /// Loads the router, `mlp.experts` (`gate_up_proj` or `gate_proj` and `up_proj`, and `down_proj`), their biases
    /// if any, and the shared expert and its gate if any, of layer `layer`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, layer: &str, sizes: &MoeConfig) -> Result<Moe, Error> {
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
        Ok(Moe {
            router: Router::load(loader, &format!("{layer}.{}", sizes.style.router), sizes)?,
            gate_up: if loader.has(&format!("{all}.gate_up_proj")) {
                GateUp::Fused(Experts {
                    outputs: 2 * inner,
                    weights: matrices("gate_up_proj", [2 * inner, hidden])?,
                    biases: biases("gate_up_proj", &[sizes.experts, 2, inner])?
                        .map(|biases| biases.reshape(&[-1, 2 * inner as isize])),
                })
            } else {
                GateUp::Separate(
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
            GateUp::Separate(gate, up) => [gate, up].map(|matrices| matrices.forward(&each, &experts)),
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
