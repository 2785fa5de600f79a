//! What is asked of a product: a norm before it, sections, and how each ends.

use std::fmt;

use crate::DType;
use crate::elementwise::{Expression, ExpressionStep};
use crate::rms_norm::Norm;
use refrain_quant::QuantFormat;

pub(crate) const OP: &str = "projection";

/// What is done in one go.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Projection {
    /// What x goes through first.
    pub norm: Option<Norm>,
    /// What lies side by side in the result.
    pub sections: Vec<Section>,
}

/// Columns of the result: matrices of one shape, and what becomes of their sums.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Section {
    /// How each matrix is stored.
    pub parts: Vec<WeightStorage>,
    /// From the parts' sums, then further arrays, to the result.
    pub epilogue: Expression,
}

/// How a matrix is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WeightStorage {
    /// f32, f16 or bf16 elements, those of a row together.
    Dense,
    /// A few bits per element.
    Quantised(QuantFormat),
}

impl WeightStorage {
    /// Operands that the matrix takes.
    pub fn planes(self) -> usize {
        match self {
            WeightStorage::Dense => 1,
            WeightStorage::Quantised(format) => 2 + usize::from(format.has_biases()),
        }
    }

    /// The format of what is quantised.
    pub fn format(self) -> Option<QuantFormat> {
        match self {
            WeightStorage::Dense => None,
            WeightStorage::Quantised(format) => Some(format),
        }
    }
}

impl Section {
    /// One matrix whose sums are the result, stored as `dtype`.
    pub fn plain(weights: WeightStorage, dtype: DType) -> Section {
        Section {
            parts: vec![weights],
            epilogue: Expression {
                inputs: vec![dtype],
                steps: vec![ExpressionStep::Input(0)],
            },
        }
    }

    /// Whether the sums of the one matrix are the result.
    pub fn is_plain(&self) -> bool {
        self.parts.len() == 1 && self.extras() == 0 && self.epilogue.steps == [ExpressionStep::Input(0)]
    }

    /// Inputs of the epilogue beside the sums.
    pub fn extras(&self) -> usize {
        self.epilogue.inputs.len() - self.parts.len()
    }
}

impl Projection {
    /// Number of operands, the result among them.
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
    /// Values that share a scale: what shaders are specialised with.
    pub(crate) fn group(self) -> u32 {
        match self {
            WeightStorage::Dense => 0,
            WeightStorage::Quantised(format) => format.group,
        }
    }
}
