//! The matrices of experts: all of a layer in one tensor, as GGUF and mlx-lm have them, or one for each expert, as they are
//! published.

use refrain_formats::write::TensorRows;
use refrain_formats::{Encoding, Error, TensorInfo};
use refrain_models::{Checkpoint, ModelConfig};

/// The matrices that an expert has.
const PARTS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Whether the tensor of this name belongs to experts.
pub(super) fn is_one(name: &str) -> bool {
    name.contains(".mlp.experts.")
}

/// One kind of matrix of a layer's experts.
pub(super) struct ExpertMatrices<'a> {
    /// `model.layers.N.mlp`.
    layer: String,
    part: &'static str,
    /// Rows and columns of one.
    pub shape: [usize; 2],
    /// Each expert's rows.
    pub each: Vec<TensorRows<'a>>,
}

impl ExpertMatrices<'_> {
    /// The name of all as one tensor, as it is when it is read.
    pub(super) fn name(&self) -> String {
        format!("{}.experts.{}", self.layer, self.part)
    }

    /// The name of all as one tensor of mlx-lm's.
    pub(super) fn mlx_name(&self) -> String {
        format!("{}.switch_mlp.{}.weight", self.layer, self.part)
    }

    /// The name of one expert's.
    pub(super) fn name_of(&self, expert: usize) -> String {
        format!("{}.experts.{expert}.{}.weight", self.layer, self.part)
    }

    /// What the choice of an encoding depends on.
    pub(super) fn info(&self) -> TensorInfo {
        TensorInfo {
            name: format!("{}.weight", self.name()),
            shape: self.shape.to_vec(),
            encoding: Encoding::F16,
            bytes: 0,
        }
    }
}

/// All matrices of the experts of a model, if it has any.
pub(super) fn all<'a>(source: &'a Checkpoint, config: &ModelConfig) -> Result<Vec<ExpertMatrices<'a>>, Error> {
    let Some(mixture) = &config.mixture else {
        return Ok(Vec::new());
    };
    let (hidden, inner) = (config.hidden_size, mixture.intermediate_size);
    let mut found = Vec::new();
    for number in 0..config.layers {
        for part in PARTS {
            let shape = match part {
                "down_proj" => [hidden, inner],
                _ => [inner, hidden],
            };
            let layer = format!("model.layers.{number}.mlp");
            let each = (0..mixture.experts).map(|expert| rows(source, &layer, part, (expert, mixture.experts), shape));
            found.push(ExpertMatrices {
                each: each.collect::<Result<_, _>>()?,
                layer,
                part,
                shape,
            });
        }
    }
    Ok(found)
}

/// One expert's rows, in whichever tensor they are.
fn rows<'a>(
    source: &'a Checkpoint,
    layer: &str,
    part: &str,
    (expert, experts): (usize, usize),
    [rows, columns]: [usize; 2],
) -> Result<TensorRows<'a>, Error> {
    let together = format!("{layer}.experts.{part}");
    let fused = format!("{layer}.experts.gate_up_proj");
    let (tensor, first) = if source.tensor(&together).is_some() {
        (source.expect(&together, &[experts, rows, columns])?, expert * rows)
    } else if part != "down_proj" && source.tensor(&fused).is_some() {
        let half = usize::from(part == "up_proj");
        (
            source.expect(&fused, &[experts, 2 * rows, columns])?,
            (2 * expert + half) * rows,
        )
    } else {
        (
            source.expect(&format!("{layer}.experts.{expert}.{part}.weight"), &[rows, columns])?,
            0,
        )
    };
    Ok(TensorRows {
        tensor,
        rows: first..first + rows,
    })
}
