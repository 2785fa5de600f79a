//! What models with recurrent layers or mixtures of experts have beside a dense transformer's sizes.

use refrain_formats::{Error, RowOrder};

use super::{MAX_HEADS, MAX_LAYERS, MAX_WIDTH};

/// Gated delta nets (arXiv 2412.06464) in the place of attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaNets {
    /// Number of query and key heads; divides `value_heads`.
    pub key_heads: usize,
    /// Number of value heads, each with a state of its own.
    pub value_heads: usize,
    /// Width of one query or key head.
    pub key_dim: usize,
    /// Width of one value head.
    pub value_dim: usize,
    /// Tokens that the short convolution sees, the newest included.
    pub taps: usize,
    /// Which layers are such; layers beyond its end are not.
    pub layers: Vec<bool>,
    /// Whether what is named `A_log` holds −exp(A_log), as GGUF files have it.
    pub rates: bool,
}

/// A mixture of experts in the place of feed-forward networks.
#[derive(Debug, Clone, PartialEq)]
pub struct MixtureConfig {
    /// Number of routed experts.
    pub experts: usize,
    /// How a token's experts are chosen.
    pub router: RouterConfig,
    /// Width inside a routed expert.
    pub intermediate_size: usize,
    /// Width inside the expert that all tokens share, if there is one.
    pub shared_intermediate_size: Option<usize>,
    /// How many layers, the first ones, have a feed-forward network all the same.
    pub dense_layers: usize,
    /// What the family's mixtures are like.
    pub style: &'static MixtureStyle,
}

/// What sets one family's mixtures apart from another's, beyond sizes.
#[derive(Debug, PartialEq, Eq)]
pub struct MixtureStyle {
    /// What transformers calls the router in a layer.
    pub router: &'static str,
    /// What mlx-lm calls the experts in a layer.
    pub in_mlx: &'static str,
    /// Whether router and experts have biases.
    pub biases: bool,
    /// Whether transformers has the experts' matrices by columns where they are not quantised, and the rows of gate and
    /// up in turns.
    pub transposed: bool,
    /// What transformers calls the expert that all tokens share, in a layer.
    pub shared: &'static str,
    /// Whether what that one adds is multiplied by the sigmoid of a score of its own.
    pub shared_gate: bool,
}

impl MixtureStyle {
    /// As most families have it.
    pub const USUAL: MixtureStyle = MixtureStyle {
        router: "mlp.gate",
        in_mlx: "mlp.switch_mlp",
        biases: false,
        transposed: false,
        shared: "mlp.shared_expert",
        shared_gate: true,
    };
}

/// Whether the tensor of this name is a norm's weight, which is never quantised, though it may have a row for each head.
pub fn is_norm(name: &str) -> bool {
    name.ends_with("norm.weight")
}

/// Whether the tensor of this name scores experts: a small one, in which bits count.
pub fn is_router(name: &str) -> bool {
    [
        ".mlp.gate.weight",
        ".mlp.router.weight",
        ".mlp.shared_expert_gate.weight",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}

/// How a token's experts are chosen: those of the largest scores, and what each adds is weighted by its score. Groups
/// and corrections are DeepSeek-V3's (DeepSeek-AI 2024, arXiv:2412.19437).
#[derive(Debug, Clone, PartialEq)]
pub struct RouterConfig {
    /// Experts that each token is routed to.
    pub used: usize,
    /// What makes scores of what the router's matrix gives.
    pub score: RouterScore,
    /// Whether something learned is added to each expert's score for the choice, and for that alone.
    pub corrected: bool,
    /// The groups among which the best are chosen first, if there are such.
    pub groups: Option<ExpertGroups>,
    /// Whether the scores of those that are used are divided by their sum.
    pub renormalise: bool,
    /// What they are multiplied by at last.
    pub scale: f32,
}

/// What makes scores of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScore {
    /// A softmax over all.
    Softmax,
    /// The sigmoid of each.
    Sigmoid,
}

/// Experts in groups of as many neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups; divides the number of experts.
    pub count: usize,
    /// Those that a token's experts are taken from.
    pub used: usize,
    /// How many experts, its best, a group is as good as together.
    pub judged: usize,
}

impl RouterConfig {
    /// The largest of a softmax, whose sum is made one.
    pub const fn softmax(used: usize) -> RouterConfig {
        RouterConfig {
            used,
            score: RouterScore::Softmax,
            corrected: false,
            groups: None,
            renormalise: true,
            scale: 1.0,
        }
    }
}

impl DeltaNets {
    /// Channels of the short convolution: those of queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Bytes (f32) that a layer keeps of a sequence: what the convolution looks back at, and the state of each value head.
    pub fn state_bytes(&self) -> u64 {
        let state = self.value_heads * self.value_dim * self.key_dim;
        4 * (self.taps.saturating_sub(1) * self.channels() + state) as u64
    }

    /// The order that GGUF files have what belongs to value heads in, each of `size` rows (or columns) behind the `first`.
    pub fn tiled(&self, first: usize, size: usize) -> RowOrder {
        match self.value_heads / self.key_heads.max(1) {
            0 | 1 => RowOrder::AsStored,
            heads => RowOrder::Tiled {
                first,
                groups: self.key_heads,
                heads,
                size,
            },
        }
    }

    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        check_counts(
            file,
            &[
                ("linear_num_key_heads", self.key_heads, MAX_HEADS),
                ("linear_num_value_heads", self.value_heads, MAX_HEADS),
                ("linear_key_head_dim", self.key_dim, MAX_HEAD),
                ("linear_value_head_dim", self.value_dim, MAX_HEAD),
                ("linear_conv_kernel_dim", self.taps, MAX_TAPS),
                ("the number of layer_types", self.layers.len(), MAX_LAYERS),
            ],
        )?;
        if self.value_heads.is_multiple_of(self.key_heads) {
            Ok(())
        } else {
            Err(Error::file(
                file,
                format!(
                    "linear_num_value_heads ({}) is not a multiple of linear_num_key_heads ({})",
                    self.value_heads, self.key_heads
                ),
            ))
        }
    }
}

impl MixtureConfig {
    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        check_counts(
            file,
            &[
                ("num_experts", self.experts, MAX_EXPERTS),
                ("num_experts_per_tok", self.router.used, self.experts),
                ("moe_intermediate_size", self.intermediate_size, MAX_WIDTH),
                (
                    "shared_expert_intermediate_size",
                    self.shared_intermediate_size.unwrap_or(1),
                    MAX_WIDTH,
                ),
            ],
        )?;
        if !(self.router.scale.is_finite() && self.router.scale > 0.0) {
            return Err(Error::file(file, "routed_scaling_factor is not a positive number"));
        }
        let Some(ExpertGroups { count, used, judged }) = self.router.groups else {
            return Ok(());
        };
        check_counts(file, &[("n_group", count, self.experts), ("topk_group", used, count)])?;
        let each = self.experts / count;
        if self.experts.is_multiple_of(count) && each >= judged && self.router.used <= used * each {
            Ok(())
        } else {
            Err(Error::file(
                file,
                format!(
                    "{} of {} experts cannot be chosen from {used} of {count} groups of at least {judged}",
                    self.router.used, self.experts
                ),
            ))
        }
    }
}

/// What kernels keep in registers.
const MAX_HEAD: usize = 512;
const MAX_TAPS: usize = 16;
const MAX_EXPERTS: usize = 1 << 12;

/// Fails for a count that is zero or above its limit.
pub(super) fn check_counts(file: &str, counts: &[(&str, usize, usize)]) -> Result<(), Error> {
    match counts.iter().find(|(_, value, limit)| *value == 0 || value > limit) {
        None => Ok(()),
        Some((name, value, limit)) => Err(Error::file(
            file,
            format!("{name} is {value}, which is not between 1 and {limit}"),
        )),
    }
}
