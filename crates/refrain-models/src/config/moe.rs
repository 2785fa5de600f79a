//! Configuration of mixtures of experts.

use refrain_formats::Error;

use super::limits::{MAX_EXPERTS, MAX_WIDTH, check_counts};

/// A mixture of experts, which replaces the MLP.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeConfig {
    /// Number of routed experts.
    pub experts: usize,
    /// Selection of each token's experts.
    pub router: RouterConfig,
    /// Intermediate size of a routed expert.
    pub intermediate_size: usize,
    /// Intermediate size of the shared expert, if any.
    pub shared_intermediate_size: Option<usize>,
    /// Number of leading layers with a dense MLP.
    pub dense_layers: usize,
    /// Architectural choices of the family.
    pub style: &'static MoeStyle,
}

/// Architectural choices of a family's mixtures of experts.
#[derive(Debug, PartialEq, Eq)]
pub struct MoeStyle {
    /// Name of the router in a layer, in transformers.
    pub router: &'static str,
    /// Name of the experts in a layer, in mlx-lm.
    pub mlx_prefix: &'static str,
    /// Whether router and experts have biases.
    pub biases: bool,
    /// Whether transformers stores unquantised expert matrices by columns, with the rows of gate and up interleaved.
    pub transposed: bool,
    /// Name of the shared expert in a layer, in transformers.
    pub shared_expert: &'static str,
    /// Whether the shared expert's output is multiplied by a sigmoid gate.
    pub shared_gate: bool,
}

impl MoeStyle {
    /// The choices of most families.
    pub const DEFAULT: MoeStyle = MoeStyle {
        router: "mlp.gate",
        mlx_prefix: "mlp.switch_mlp",
        biases: false,
        transposed: false,
        shared_expert: "mlp.shared_expert",
        shared_gate: true,
    };
}

/// Whether the tensor is a router: a small matrix that needs full precision.
pub fn is_router(name: &str) -> bool {
    [
        ".mlp.gate.weight",
        ".mlp.router.weight",
        ".mlp.shared_expert_gate.weight",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}

/// Selection of each token's experts: those with the highest scores, weighted by the scores. Groups and score
/// corrections are from DeepSeek-V3 (DeepSeek-AI 2024, arXiv:2412.19437).
#[derive(Debug, Clone, PartialEq)]
pub struct RouterConfig {
    /// Number of experts per token.
    pub experts_per_token: usize,
    /// Function from router logits to scores.
    pub score: RouterScore,
    /// Whether a learned correction is added to the scores for selection only.
    pub score_correction: bool,
    /// Groups of experts; the best groups are selected first.
    pub groups: Option<ExpertGroups>,
    /// Whether the selected scores are divided by their sum.
    pub renormalise: bool,
    /// Factor of the weights.
    pub scale: f32,
}

/// Function from router logits to scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScore {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
}

/// Groups of consecutive experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups; divides the number of experts.
    pub count: usize,
    /// Number of groups that a token's experts are selected from.
    pub selected: usize,
    /// Number of top experts whose scores sum to a group's score.
    pub top_experts: usize,
}

impl RouterConfig {
    /// Selects the top experts of a softmax and renormalises their weights.
    pub const fn softmax(experts_per_token: usize) -> RouterConfig {
        RouterConfig {
            experts_per_token,
            score: RouterScore::Softmax,
            score_correction: false,
            groups: None,
            renormalise: true,
            scale: 1.0,
        }
    }
}

impl MoeConfig {
    pub(super) fn validate(&self, file: &str) -> Result<(), Error> {
        check_counts(
            file,
            &[
                ("num_experts", self.experts, MAX_EXPERTS),
                ("num_experts_per_tok", self.router.experts_per_token, self.experts),
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
        let Some(ExpertGroups {
            count,
            selected,
            top_experts,
        }) = self.router.groups
        else {
            return Ok(());
        };
        check_counts(
            file,
            &[("n_group", count, self.experts), ("topk_group", selected, count)],
        )?;
        let each = self.experts / count;
        if self.experts.is_multiple_of(count) && each >= top_experts && self.router.experts_per_token <= selected * each
        {
            Ok(())
        } else {
            Err(Error::file(
                file,
                format!(
                    "{} of {} experts cannot be selected from {selected} of {count} groups of at least {top_experts}",
                    self.router.experts_per_token, self.experts
                ),
            ))
        }
    }
}
