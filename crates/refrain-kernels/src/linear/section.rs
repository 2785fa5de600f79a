//! Description of a fused product: a norm, and sections with their epilogues.

use std::fmt;

use crate::DType;
use crate::elementwise::{Expression, ExpressionStep};
use crate::rms_norm::Norm;
use refrain_quant::QuantFormat;

pub(crate) const OP: &str = "projection";

/// A fused product.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Projection {
    /// Norm of x.
    pub norm: Option<Norm>,
    /// The sections, whose results are side by side in the output's rows.
    pub sections: Vec<Section>,
}

/// Some columns of the result: matrices of one shape, and the epilogue that combines their products.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Section {
    /// Storage of each matrix (part) of the section.
    pub parts: Vec<WeightStorage>,
    /// The epilogue. Its inputs are the sums of the parts, then extra arrays.
    pub epilogue: Expression,
}

/// Storage of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WeightStorage {
    /// Rows of f32, f16 or bf16 elements.
    Dense,
    /// Quantised planes.
    Quantised(QuantFormat),
}

impl WeightStorage {
    /// Number of operands of the matrix.
    pub fn planes(self) -> usize {
        match self {
            WeightStorage::Dense => 1,
            WeightStorage::Quantised(format) => 2 + usize::from(format.has_biases()),
        }
    }

    /// The quantised format; `None` for floats.
    pub fn format(self) -> Option<QuantFormat> {
        match self {
            WeightStorage::Dense => None,
            WeightStorage::Quantised(format) => Some(format),
        }
    }
}

impl Section {
    /// A section of one matrix without epilogue, whose result has type `dtype`.
    pub fn plain(weights: WeightStorage, dtype: DType) -> Section {
        Section {
            parts: vec![weights],
            epilogue: Expression {
                inputs: vec![dtype],
                steps: vec![ExpressionStep::Input(0)],
            },
        }
    }

    /// Whether the section has one matrix and no epilogue.
    pub fn is_plain(&self) -> bool {
        self.parts.len() == 1 && self.extras() == 0 && self.epilogue.steps == [ExpressionStep::Input(0)]
    }

    /// Number of inputs of the epilogue besides the sums.
    pub fn extras(&self) -> usize {
        self.epilogue.inputs.len() - self.parts.len()
    }
}

impl Projection {
    /// Number of operands, including the result.
    pub fn operands(&self) -> usize {
        let norm = usize::from(self.norm.is_some_and(|n| n.weighted));
        let planes = self.sections.iter().flat_map(|s| &s.parts).map(|w| w.planes());
        let extras = self.sections.iter().map(Section::extras);
        2 + norm + planes.chain(extras).sum::<usize>()
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(norm) = &self.norm {
            write!(f, "of rms_norm eps {:e}: ", norm.eps)?;
        }
        let sections: Vec<String> = self.sections.iter().map(Section::to_string).collect();
        f.write_str(&sections.join(" | "))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(WeightStorage::to_string).collect();
        f.write_str(&parts.join(", "))?;
        if self.is_plain() {
            Ok(())
        } else {
            write!(f, " {{{}}}", self.epilogue)
        }
    }
}

impl fmt::Display for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightStorage::Dense => f.write_str("dense"),
            WeightStorage::Quantised(format) => write!(f, "{format}"),
        }
    }
}

impl WeightStorage {
    /// Group size, a specialisation constant of shaders; 0 for floats.
    pub(crate) fn group(self) -> u32 {
        match self {
            WeightStorage::Dense => 0,
            WeightStorage::Quantised(format) => format.group,
        }
    }
}
