//! The matrices of experts: all of a layer in one tensor, as GGUF and mlx-lm have them, or one for each expert, as they are
//! published; and their biases.

use refrain_formats::{Encoding, Error, RowOrder, TensorInfo};
use refrain_models::config::MixtureConfig;
use refrain_models::{Checkpoint, ModelConfig};

use crate::files::{Conversion, TensorRows};

/// The matrices that an expert has.
const PARTS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Whether the tensor of this name belongs to experts.
pub(super) fn is_one(name: &str) -> bool {
    name.contains(".mlp.experts.")
}

/// One kind of matrix of a layer's experts, or the biases that go with it.
pub(super) struct ExpertMatrices<'a> {
    /// `model.layers.N`.
    layer: String,
    part: &'static str,
    /// Whether they are biases: of each expert a row.
    biases: bool,
    /// Rows and columns of one.
    shape: [usize; 2],
    /// Each expert's rows.
    pub each: Vec<TensorRows<'a>>,
}

impl ExpertMatrices<'_> {
    /// The name of all as one tensor, as it is when it is read.
    pub(super) fn name(&self) -> String {
        format!("{}.mlp.experts.{}{}", self.layer, self.part, self.ending())
    }

    /// The name of all as one tensor of mlx-lm's.
    pub(super) fn mlx_name(&self, mixture: &MixtureConfig) -> String {
        let kind = if self.biases { "bias" } else { "weight" };
        format!("{}.{}.{}.{kind}", self.layer, mixture.style.in_mlx, self.part)
    }

    /// The name of one expert's.
    pub(super) fn name_of(&self, expert: usize) -> String {
        format!("{}.mlp.experts.{expert}.{}.weight", self.layer, self.part)
    }

    /// The shape of all as one tensor.
    pub(super) fn shape(&self) -> Vec<usize> {
        let [rows, columns] = self.shape;
        if self.biases {
            vec![self.each.len(), columns]
        } else {
            vec![self.each.len(), rows, columns]
        }
    }

    /// The shape of one expert's.
    pub(super) fn shape_of_one(&self) -> Vec<usize> {
        let first = usize::from(self.biases);
        self.shape[first..].to_vec()
    }

    /// What the choice of an encoding depends on.
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

/// All matrices of the experts of a model, if it has any: of each layer those in the order of [`PARTS`], and then their
/// biases, if there are such.
pub(super) fn all<'a>(source: &'a Checkpoint, config: &ModelConfig) -> Result<Vec<ExpertMatrices<'a>>, Error> {
    let Some(mixture) = &config.feed_forward.mixture else {
        return Ok(Vec::new());
    };
    let layers = (0..config.layers).filter(|&number| config.layer_mixture(number).is_some());
    let (hidden, inner) = (config.hidden_size, mixture.intermediate_size);
    let kinds = if mixture.style.biases {
        &[false, true][..]
    } else {
        &[false]
    };
    let mut found = Vec::new();
    for number in layers {
        for &biases in kinds {
            for part in PARTS {
                let [rows, columns] = if part == "down_proj" {
                    [hidden, inner]
                } else {
                    [inner, hidden]
                };
                let mut matrices = ExpertMatrices {
                    layer: format!("model.layers.{number}"),
                    part,
                    biases,
                    shape: if biases { [1, rows] } else { [rows, columns] },
                    each: Vec::new(),
                };
                let each = (0..mixture.experts).map(|expert| rows_of(source, &matrices, expert, mixture.experts));
                matrices.each = each.collect::<Result<_, _>>()?;
                found.push(matrices);
            }
        }
    }
    Ok(found)
}

/// One expert's rows, in whichever tensor they are.
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

/// The tensors of all experts of a model whose matrices transformers has by columns, those of gate and up in one, stored
/// as `to`.
pub(super) fn by_columns<'a>(
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
        let shape = row.in_directory.stored_shape(&row.shape);
        let mut conversion = Conversion::joined(sources, name.clone(), shape, name, to);
        conversion.order = row.in_directory;
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

/// Whether transformers has the experts' matrices of this model by columns.
pub(super) fn are_by_columns(config: &ModelConfig) -> bool {
    config
        .feed_forward
        .mixture
        .as_ref()
        .is_some_and(|mixture| mixture.style.transposed)
}

/// Whether a tensor of a synthetic checkpoint lies otherwise in a directory of transformers, and how.
pub(crate) fn order(config: &ModelConfig, name: &str) -> Option<RowOrder> {
    let found = are_by_columns(config) && config.quantisation.is_none() && is_one(name);
    let table = if found {
        (config.family.tensors)(config)
    } else {
        Vec::new()
    };
    let row = table.into_iter().find(|row| row.name == name)?;
    Some(row.in_directory).filter(|order| *order != RowOrder::AsStored)
}
