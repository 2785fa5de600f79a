//! Weights and biases of experts: one tensor per layer, as in GGUF and mlx-lm, or one per expert, as published.

use refrain_formats::{Encoding, Error, RowOrder, TensorInfo};
use refrain_models::config::MoeConfig;
use refrain_models::{Checkpoint, ModelConfig};

use crate::files::{Conversion, TensorRows};

/// The projections of an expert.
const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Whether the tensor of this name belongs to experts.
pub(super) fn is_expert_tensor(name: &str) -> bool {
    name.contains(".mlp.experts.")
}

/// One projection of all experts of a layer, or its biases.
pub(super) struct ExpertMatrices<'a> {
    /// [`ModelConfig::layer_name`].
    layer: String,
    part: &'static str,
    /// Whether these are biases: one row per expert.
    biases: bool,
    /// Rows and columns of one expert.
    shape: [usize; 2],
    /// The rows of each expert.
    pub each: Vec<TensorRows<'a>>,
}

impl ExpertMatrices<'_> {
    /// Returns the name of the combined tensor, as it is read.
    pub(super) fn name(&self) -> String {
        format!("{}.mlp.experts.{}{}", self.layer, self.part, self.ending())
    }

    /// Returns mlx-lm's name of the combined tensor.
    pub(super) fn mlx_name(&self, moe: &MoeConfig) -> String {
        let kind = if self.biases { "bias" } else { "weight" };
        format!("{}.{}.{}.{kind}", self.layer, moe.style.mlx_prefix, self.part)
    }

    /// Returns the name of one expert's tensor.
    pub(super) fn name_of(&self, expert: usize) -> String {
        format!("{}.mlp.experts.{expert}.{}.weight", self.layer, self.part)
    }

    /// Returns the shape of the combined tensor.
    pub(super) fn shape(&self) -> Vec<usize> {
        let [rows, columns] = self.shape;
        if self.biases {
            vec![self.each.len(), columns]
        } else {
            vec![self.each.len(), rows, columns]
        }
    }

    /// Returns the shape of one expert's tensor.
    pub(super) fn shape_of_one(&self) -> Vec<usize> {
        let first = usize::from(self.biases);
        self.shape[first..].to_vec()
    }

    /// Returns the properties from which an encoding is chosen.
    pub(super) fn info(&self) -> TensorInfo {
        TensorInfo {
            name: if self.biases {
                self.name()
            } else {
                format!("{}.weight", self.name())
            },
            shape: self.shape_of_one(),
            encoding: Encoding::F16,
            bytes: 0,
        }
    }

    fn ending(&self) -> &'static str {
        if self.biases { "_bias" } else { "" }
    }
}

/// Returns all expert matrices of a model by layer, in the order of [`PROJECTIONS`], each layer followed by its
/// biases.
pub(super) fn all<'a>(source: &'a Checkpoint, config: &ModelConfig) -> Result<Vec<ExpertMatrices<'a>>, Error> {
    let Some(moe) = &config.feed_forward.moe else {
        return Ok(Vec::new());
    };
    let layers = (0..config.layers + config.mtp_layers).filter(|&number| config.layer_moe(number).is_some());
    let (hidden, inner) = (config.hidden_size, moe.intermediate_size);
    let kinds = if moe.style.biases { &[false, true][..] } else { &[false] };
    let mut found = Vec::new();
    for number in layers {
        for &biases in kinds {
            for part in PROJECTIONS {
                let [rows, columns] = if part == "down_proj" {
                    [hidden, inner]
                } else {
                    [inner, hidden]
                };
                let mut matrices = ExpertMatrices {
                    layer: config.layer_name(number),
                    part,
                    biases,
                    shape: if biases { [1, rows] } else { [rows, columns] },
                    each: Vec::new(),
                };
                let each = (0..moe.experts).map(|expert| rows_of(source, &matrices, expert, moe.experts));
                matrices.each = each.collect::<Result<_, _>>()?;
                found.push(matrices);
            }
        }
    }
    Ok(found)
}

/// Returns one expert's rows, whichever tensor holds them.
fn rows_of<'a>(
    source: &'a Checkpoint,
    matrices: &ExpertMatrices<'_>,
    expert: usize,
    experts: usize,
) -> Result<TensorRows<'a>, Error> {
    let [rows, columns] = matrices.shape;
    let together = matrices.name();
    let fused = format!("{}.mlp.experts.gate_up_proj{}", matrices.layer, matrices.ending());
    let (tensor, first) = if source.tensor(&together).is_some() {
        let shape = if matrices.biases {
            vec![experts, columns]
        } else {
            vec![experts, rows, columns]
        };
        (source.expect(&together, &shape)?, expert * rows)
    } else if matrices.part != "down_proj" && source.tensor(&fused).is_some() {
        let half = usize::from(matrices.part == "up_proj");
        (
            source.expect(&fused, &[experts, 2 * rows, columns])?,
            (2 * expert + half) * rows,
        )
    } else {
        (source.expect(&matrices.name_of(expert), &[rows, columns])?, 0)
    };
    Ok(TensorRows {
        tensor,
        rows: first..first + rows,
    })
}

/// Returns the expert tensors in transformers' transposed layout with gate and up fused, stored as `to`.
pub(super) fn transposed<'a>(
    source: &'a Checkpoint,
    config: &ModelConfig,
    to: Encoding,
) -> Result<Vec<Conversion<'a>>, Error> {
    let table = (config.family.tensors)(config);
    let mut conversions = Vec::new();
    let mut add = |name: String, sources: Vec<TensorRows<'a>>| {
        let Some(row) = table.iter().find(|row| row.name == name) else {
            return;
        };
        let shape = row.hf_rows.stored_shape(&row.shape);
        let mut conversion = Conversion::joined(sources, name.clone(), shape, name, to);
        conversion.order = row.hf_rows;
        conversions.push(conversion);
    };
    let mut all = all(source, config)?.into_iter();
    while let (Some(gate), Some(up), Some(down)) = (all.next(), all.next(), all.next()) {
        let name = format!("{}.mlp.experts.gate_up_proj{}", gate.layer, gate.ending());
        let pairs = gate.each.into_iter().zip(up.each);
        add(name, pairs.flat_map(|(gate, up)| [gate, up]).collect());
        let name = down.name();
        add(name, down.each);
    }
    Ok(conversions)
}

/// Whether transformers stores this model's expert matrices transposed.
pub(super) fn is_transposed(config: &ModelConfig) -> bool {
    config.feed_forward.moe.as_ref().is_some_and(|moe| moe.style.transposed)
}

/// Returns the row order of a synthetic tensor in a transformers directory, if it differs.
pub(crate) fn order(config: &ModelConfig, name: &str) -> Option<RowOrder> {
    let found = is_transposed(config) && config.quantisation.is_none() && is_expert_tensor(name);
    let table = if found {
        (config.family.tensors)(config)
    } else {
        Vec::new()
    };
    let row = table.into_iter().find(|row| row.name == name)?;
    Some(row.hf_rows).filter(|order| *order != RowOrder::AsStored)
}
