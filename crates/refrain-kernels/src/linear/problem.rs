use super::choice::RowChoice;
use super::routing::Routing;
use super::section::{OP, Projection, Section, WeightStorage};
use super::sources::QuantMatrix;
use crate::elementwise::Expression;
use crate::kit::text::{address, is_wide, require_float, require_shape};
use crate::{DType, OperandSpec, Push, Unsupported};

/// A projection of checked operands: addresses, extents and strides.
pub(crate) struct ProjectionProblem<'a> {
    pub tokens: usize,
    /// K.
    pub columns: usize,
    pub x: StridedMatrix,
    /// The norm's epsilon, and its weight.
    pub norm: Option<(f32, Option<NormWeight>)>,
    pub sections: Vec<SectionPlan<'a>>,
    pub out: StridedMatrix,
    /// Products of many matrices at once, for dense weights alone.
    pub batch: Option<BatchStrides>,
    /// Matrices that each row of x chooses among many.
    pub routing: Option<Routing>,
    /// The largest results of a section, which are wanted too.
    pub choice: Option<RowChoice>,
    /// Number of operands, the result among them.
    pub operands: usize,
}

/// A norm's weight.
pub(crate) struct NormWeight {
    pub address: Push,
    pub dtype: DType,
    /// Whether four neighbours can be loaded at once, from each multiple of four on.
    pub wide: bool,
}

/// Where the rows of x, or of the result, lie.
pub(crate) struct StridedMatrix {
    pub address: Push,
    pub dtype: DType,
    /// Elements between rows, and within one.
    pub strides: [usize; 2],
    /// Whether four neighbours can be loaded at once, from each multiple of four on.
    pub wide: bool,
}

/// Two dimensions along which whole products are repeated.
pub(crate) struct BatchStrides {
    /// Extents, the outer first.
    pub extents: [usize; 2],
    /// Strides of x, the weights and the result.
    pub strides: [[usize; 2]; 3],
}

impl BatchStrides {
    pub(crate) fn count(&self) -> usize {
        self.extents.iter().product()
    }
}

/// A section of checked operands.
pub(crate) struct SectionPlan<'a> {
    /// N.
    pub rows: usize,
    /// The first column of the result.
    pub column: usize,
    pub parts: Vec<SectionPart<'a>>,
    pub extras: Vec<Extra>,
    pub epilogue: Expression,
}

/// One matrix.
pub(crate) struct SectionPart<'a> {
    pub planes: WeightPlanes<'a>,
}

/// The memory of a matrix.
#[derive(Clone)]
pub(crate) enum WeightPlanes<'a> {
    Dense {
        address: Push,
        dtype: DType,
        /// Elements between rows.
        stride: usize,
        /// Whether 16 bytes of a row can be loaded at once.
        wide: bool,
    },
    Quantised(QuantMatrix<'a>),
}

/// A further input of the epilogue.
#[derive(Clone)]
pub(crate) struct Extra {
    pub address: Push,
    pub dtype: DType,
    /// Along tokens and columns.
    pub strides: [usize; 2],
}

impl WeightPlanes<'_> {
    pub(crate) fn weights(&self) -> WeightStorage {
        match self {
            WeightPlanes::Dense { .. } => WeightStorage::Dense,
            WeightPlanes::Quantised(weights) => WeightStorage::Quantised(weights.format),
        }
    }

    pub(crate) fn addresses(&self) -> Vec<Push> {
        match self {
            WeightPlanes::Dense { address, .. } => vec![address.clone()],
            WeightPlanes::Quantised(weights) => weights.addresses().collect(),
        }
    }

    /// What must be equal for two matrices to be read by the same text and arguments.
    fn kind(&self) -> (WeightStorage, Vec<DType>, usize, bool) {
        match self {
            WeightPlanes::Dense {
                dtype, stride, wide, ..
            } => (self.weights(), vec![*dtype], *stride, *wide),
            WeightPlanes::Quantised(weights) => {
                let parameters = [Some(weights.scales), weights.biases].into_iter().flatten();
                (self.weights(), parameters.map(|o| o.dtype).collect(), 0, true)
            }
        }
    }
}

impl SectionPart<'_> {
    /// Neighbouring values that an invocation takes at once.
    pub(crate) fn chunk(&self) -> usize {
        match &self.planes {
            WeightPlanes::Dense { dtype, .. } => 16 / dtype.size(),
            WeightPlanes::Quantised(weights) if weights.format.bits == 8 => 16,
            WeightPlanes::Quantised(_) => 32,
        }
    }
}

impl SectionPlan<'_> {
    /// Whether one call can compute both.
    fn is_like(&self, other: &SectionPlan<'_>) -> bool {
        self.parts.len() == other.parts.len()
            && self.parts[0].planes.kind() == other.parts[0].planes.kind()
            && (self.ends_like(other) || self.sum_dtype() == other.sum_dtype())
    }

    /// Whether the sums become a result in the same way.
    pub(crate) fn ends_like(&self, other: &SectionPlan<'_>) -> bool {
        let extras = |s: &SectionPlan<'_>| s.extras.iter().map(|e| (e.dtype, e.strides)).collect::<Vec<_>>();
        self.epilogue == other.epilogue && extras(self) == extras(other)
    }

    /// What the first sum is rounded to, where the epilogue computes with floats alone.
    fn sum_dtype(&self) -> Option<DType> {
        let inputs = &self.epilogue.inputs;
        inputs.iter().all(|dtype| dtype.is_float()).then(|| inputs[0])
    }
}

impl<'a> ProjectionProblem<'a> {
    pub(crate) fn new(
        projection: &Projection,
        operands: &[&'a OperandSpec],
    ) -> Result<ProjectionProblem<'a>, Unsupported> {
        let size = |what: String| Unsupported::Size { op: OP, what };
        if operands.len() != projection.operands() {
            let (found, wanted) = (operands.len(), projection.operands());
            return Err(size(format!("{found} operands given for {wanted}")));
        }
        let (x, out) = (operands[0], operands[operands.len() - 1]);
        require_float(OP, x)?;
        require_float(OP, out)?;
        let &[tokens, columns] = &x.layout.shape[..] else {
            return Err(size(format!("x has shape {:?}, expected [T, K]", x.layout.shape)));
        };
        let mut next = 1;
        let mut take = |count: usize| {
            next += count;
            next - count
        };
        let mut norm = None;
        if let Some(wanted) = &projection.norm {
            let weight = if wanted.weighted {
                Some(norm_weight(take(1), operands, columns)?)
            } else {
                None
            };
            norm = Some((wanted.eps, weight));
        }
        let mut sections = Vec::new();
        for section in &projection.sections {
            let numbers: Vec<usize> = section.parts.iter().map(|w| take(w.planes())).collect();
            sections.push(SectionPlan::new(section, &numbers, operands, columns)?);
        }
        let mut column = 0;
        for (plan, section) in sections.iter_mut().zip(&projection.sections) {
            plan.column = column;
            column += plan.rows;
            let first = take(section.extras());
            let extras = first..first + section.extras();
            plan.extras = extras
                .map(|number| extra(number, operands, [tokens, plan.rows]))
                .collect::<Result<_, _>>()?;
            let result = plan.epilogue.dtypes().map_err(|e| size(e.to_string()))?;
            if result.last() != Some(&out.dtype) {
                return Err(size(format!("epilogues give {result:?}, the result is {}", out.dtype)));
            }
        }
        require_shape(OP, "the result", out, &[tokens, column])?;
        Ok(ProjectionProblem {
            tokens,
            columns,
            x: StridedMatrix::new(0, x)?,
            norm,
            sections,
            out: StridedMatrix::new(operands.len() - 1, out)?,
            batch: None,
            routing: None,
            choice: None,
            operands: operands.len(),
        })
    }

    /// The product of x and one matrix, of `rows` rows.
    pub(crate) fn product(
        tokens: usize,
        columns: usize,
        x: StridedMatrix,
        w: (WeightPlanes<'a>, usize),
        out: StridedMatrix,
    ) -> ProjectionProblem<'a> {
        let (planes, rows) = w;
        let weights = planes.weights();
        let plain = Section::plain(weights, out.dtype);
        let section = SectionPlan {
            rows,
            column: 0,
            parts: vec![SectionPart { planes }],
            extras: Vec::new(),
            epilogue: plain.epilogue,
        };
        ProjectionProblem {
            tokens,
            columns,
            x,
            norm: None,
            operands: 2 + weights.planes(),
            sections: vec![section],
            out,
            batch: None,
            routing: None,
            choice: None,
        }
    }

    /// Products that are summed: K, of each expert whose results are added up.
    pub(crate) fn depth(&self) -> usize {
        let joined = self.routing.as_ref().filter(|r| r.weights.is_some());
        self.columns * joined.map_or(1, |r| r.used)
    }

    /// How often the product is made, with other matrices.
    pub(crate) fn repeats(&self) -> usize {
        let batches = self.batch.as_ref().map_or(1, BatchStrides::count);
        batches * self.routing.as_ref().map_or(1, Routing::repeats)
    }

    /// What is chosen among the results of `sections`, if it is among these, and of which.
    pub(crate) fn choice_of(&self, sections: &[&SectionPlan<'_>]) -> Option<(&RowChoice, usize)> {
        let choice = self.choice.as_ref()?;
        let column = |section: &&SectionPlan<'_>| section.column == choice.column;
        Some((choice, sections.iter().position(column)?))
    }

    /// The sections in groups that one call computes.
    pub(crate) fn alike(&self) -> Vec<Vec<&SectionPlan<'a>>> {
        let mut groups: Vec<Vec<&SectionPlan<'a>>> = Vec::new();
        for section in self.sections.iter().filter(|s| s.rows > 0) {
            // A shader's sections have one part, or are alone.
            let fits = |group: &&mut Vec<&SectionPlan<'a>>| section.parts.len() == 1 && group[0].is_like(section);
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(section),
                None => groups.push(vec![section]),
            }
        }
        groups
    }
}

impl StridedMatrix {
    pub(crate) fn new(number: usize, operand: &OperandSpec) -> Result<StridedMatrix, Unsupported> {
        let strides = [operand.layout.strides[0], operand.layout.strides[1]];
        StridedMatrix::of(number, operand, strides, &[])
    }

    /// Rows of an operand of any shape, `strides` apart, of which some start `offsets` apart.
    pub(crate) fn of(
        number: usize,
        operand: &OperandSpec,
        strides: [usize; 2],
        offsets: &[usize],
    ) -> Result<StridedMatrix, Unsupported> {
        let wide = strides[1] == 1 && is_wide(operand, &strides[..1]) && is_wide(operand, offsets);
        Ok(StridedMatrix {
            address: address(OP, number, operand)?,
            dtype: operand.dtype,
            strides,
            wide,
        })
    }
}

impl<'a> SectionPlan<'a> {
    /// The section whose parts' first operands have the given numbers, without its further inputs.
    pub(crate) fn new(
        section: &Section,
        numbers: &[usize],
        operands: &[&'a OperandSpec],
        columns: usize,
    ) -> Result<SectionPlan<'a>, Unsupported> {
        let size = |what: String| Err(Unsupported::Size { op: OP, what });
        let mut parts: Vec<SectionPart<'a>> = Vec::new();
        let mut rows = None;
        for (&weights, &number) in section.parts.iter().zip(numbers) {
            let (part, shape) = part(weights, number, operands)?;
            if shape[1] != columns || rows.is_some_and(|rows| rows != shape[0]) {
                return size(format!(
                    "a matrix of shape {shape:?} meets {columns} columns and {rows:?} rows"
                ));
            }
            rows = Some(shape[0]);
            parts.push(part);
        }
        let Some(rows) = rows else {
            return size("a section without a matrix".to_string());
        };
        if parts.iter().any(|p| p.planes.kind() != parts[0].planes.kind()) {
            return size("the matrices of one section are stored differently".to_string());
        }
        let sums = &section.epilogue.inputs[..parts.len().min(section.epilogue.inputs.len())];
        if sums.len() < parts.len() || sums.iter().any(|d| !d.is_float()) {
            return size(format!("an epilogue of {sums:?} for {} sums", parts.len()));
        }
        Ok(SectionPlan {
            rows,
            column: 0,
            parts,
            extras: Vec::new(),
            epilogue: section.epilogue.clone(),
        })
    }
}

/// A matrix and its shape.
fn part<'a>(
    weights: WeightStorage,
    number: usize,
    operands: &[&'a OperandSpec],
) -> Result<(SectionPart<'a>, [usize; 2]), Unsupported> {
    match weights {
        WeightStorage::Dense => {
            let w = operands[number];
            require_float(OP, w)?;
            let &[rows, columns] = &w.layout.shape[..] else {
                let what = format!("a matrix has shape {:?}, expected [N, K]", w.layout.shape);
                return Err(Unsupported::Size { op: OP, what });
            };
            if columns > 1 && w.layout.strides[1] != 1 {
                return Err(Unsupported::NeedsContiguous {
                    op: OP,
                    operand: number,
                });
            }
            let stride = w.layout.strides[0];
            let wide = columns.is_multiple_of(16 / w.dtype.size()) && is_wide(w, &[stride]);
            let planes = WeightPlanes::Dense {
                address: address(OP, number, w)?,
                dtype: w.dtype,
                stride,
                wide,
            };
            Ok((SectionPart { planes }, [rows, columns]))
        }
        WeightStorage::Quantised(format) => {
            let biases = format.has_biases().then(|| operands[number + 2]);
            let planes = QuantMatrix::new(format, number, operands[number], operands[number + 1], biases)?;
            let shape = [planes.rows, planes.columns];
            let planes = WeightPlanes::Quantised(planes);
            Ok((SectionPart { planes }, shape))
        }
    }
}

/// The norm's weight.
pub(crate) fn norm_weight(number: usize, operands: &[&OperandSpec], columns: usize) -> Result<NormWeight, Unsupported> {
    let operand = operands[number];
    require_float(OP, operand)?;
    require_shape(OP, "the norm's weight", operand, &[columns])?;
    if !operand.layout.is_contiguous() {
        return Err(Unsupported::NeedsContiguous {
            op: OP,
            operand: number,
        });
    }
    Ok(NormWeight {
        address: address(OP, number, operand)?,
        dtype: operand.dtype,
        wide: is_wide(operand, &[]),
    })
}

pub(crate) fn extra(number: usize, operands: &[&OperandSpec], shape: [usize; 2]) -> Result<Extra, Unsupported> {
    let operand = operands[number];
    require_shape(OP, "an epilogue's input", operand, &shape)?;
    Ok(Extra {
        address: address(OP, number, operand)?,
        dtype: operand.dtype,
        strides: [operand.layout.strides[0], operand.layout.strides[1]],
    })
}
