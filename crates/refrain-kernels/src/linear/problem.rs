use super::router_top_k::RouterTopK;
use super::routing::Routing;
use super::section::{OP, Projection, Section, WeightStorage};
use super::sources::QuantMatrix;
use crate::elementwise::Expression;
use crate::kit::text::{address, is_wide, require_float, require_shape};
use crate::{DType, OperandSpec, Push, Unsupported};

/// A projection with checked operands: addresses, extents and strides.
pub(crate) struct ProjectionProblem<'a> {
    pub tokens: usize,
    /// K.
    pub columns: usize,
    pub x: StridedMatrix,
    /// The norm's epsilon, and its weight.
    pub norm: Option<(f32, Option<NormWeight>)>,
    pub sections: Vec<SectionPlan<'a>>,
    pub out: StridedMatrix,
    /// Batch dimensions; only with dense weights.
    pub batch: Option<BatchStrides>,
    /// The experts of each row of x.
    pub routing: Option<Routing>,
    /// Top-k of a section's results, an additional output.
    pub top_k: Option<RouterTopK>,
    /// Number of operands, including the result.
    pub operands: usize,
}

/// A norm's weight.
pub(crate) struct NormWeight {
    pub address: Push,
    pub dtype: DType,
    /// Whether aligned vectors of four values can be loaded at once.
    pub wide: bool,
}

/// Address and strides of x or of the result.
pub(crate) struct StridedMatrix {
    pub address: Push,
    pub dtype: DType,
    /// Strides between rows and within a row, in elements.
    pub strides: [usize; 2],
    /// Whether aligned vectors of four values can be loaded at once.
    pub wide: bool,
}

/// The two batch dimensions.
pub(crate) struct BatchStrides {
    /// Extents, outer dimension first.
    pub extents: [usize; 2],
    /// Strides of x, the weights and the result.
    pub strides: [[usize; 2]; 3],
}

impl BatchStrides {
    pub(crate) fn count(&self) -> usize {
        self.extents.iter().product()
    }
}

/// A section with checked operands.
pub(crate) struct SectionPlan<'a> {
    /// N.
    pub rows: usize,
    /// The first column of the result.
    pub column: usize,
    pub parts: Vec<SectionPart<'a>>,
    pub extras: Vec<Extra>,
    pub epilogue: Expression,
}

/// One matrix of a section.
pub(crate) struct SectionPart<'a> {
    pub planes: WeightPlanes<'a>,
}

/// Storage of a matrix.
#[derive(Clone)]
pub(crate) enum WeightPlanes<'a> {
    Dense {
        address: Push,
        dtype: DType,
        /// Stride between rows, in elements.
        stride: usize,
        /// Whether 16 bytes of a row can be loaded at once.
        wide: bool,
    },
    Quantised(QuantMatrix<'a>),
}

/// An input of the epilogue besides the sums.
#[derive(Clone)]
pub(crate) struct Extra {
    pub address: Push,
    pub dtype: DType,
    /// Strides along tokens and columns.
    pub strides: [usize; 2],
}

impl WeightPlanes<'_> {
    pub(crate) fn weights(&self) -> WeightStorage {
        match self {
            WeightPlanes::Dense { .. } => WeightStorage::Dense,
            WeightPlanes::Quantised(weights) => WeightStorage::Quantised(weights.format),
        }
    }

    /// Whether these are weights of a model in f32: f32, or quantised with scales in f32. Their products do not round x.
    pub(crate) fn keep_x(&self) -> bool {
        match self {
            WeightPlanes::Dense { dtype, .. } => *dtype == DType::F32,
            WeightPlanes::Quantised(weights) => weights.scales.dtype == DType::F32,
        }
    }

    pub(crate) fn addresses(&self) -> Vec<Push> {
        match self {
            WeightPlanes::Dense { address, .. } => vec![address.clone()],
            WeightPlanes::Quantised(weights) => weights.addresses().collect(),
        }
    }

    /// What two matrices must have in common to be read by the same kernel and arguments.
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
    /// Consecutive values that an invocation loads at once.
    pub(crate) fn chunk(&self) -> usize {
        match &self.planes {
            WeightPlanes::Dense { dtype, .. } => 16 / dtype.size(),
            WeightPlanes::Quantised(weights) if weights.format.bits == 8 => 16,
            WeightPlanes::Quantised(_) => 32,
        }
    }
}

impl SectionPlan<'_> {
    /// Whether one call can compute both sections.
    fn can_fuse(&self, other: &SectionPlan<'_>) -> bool {
        self.parts.len() == other.parts.len()
            && self.parts[0].planes.kind() == other.parts[0].planes.kind()
            && (self.same_epilogue(other) || self.sum_dtype() == other.sum_dtype())
    }

    /// Whether both sections have the same epilogue and extra inputs.
    pub(crate) fn same_epilogue(&self, other: &SectionPlan<'_>) -> bool {
        let extras = |s: &SectionPlan<'_>| s.extras.iter().map(|e| (e.dtype, e.strides)).collect::<Vec<_>>();
        self.epilogue == other.epilogue && extras(self) == extras(other)
    }

    /// The type that the first sum is rounded to; `None` if the epilogue has integer inputs.
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
            return Err(size(format!("expected {wanted} operands, found {found}")));
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
            top_k: None,
            operands: operands.len(),
        })
    }

    /// The product of x and one matrix of `rows` rows.
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
            top_k: None,
        }
    }

    /// Length of the dot products: K, times the experts per token if their results are added up.
    pub(crate) fn depth(&self) -> usize {
        let summed = self.routing.as_ref().filter(|r| r.weights.is_some());
        self.columns * summed.map_or(1, |r| r.used)
    }

    /// Number of weights of all matrices.
    pub(crate) fn weights(&self) -> usize {
        let rows: usize = self.sections.iter().map(|s| s.rows * s.parts.len()).sum();
        rows * self.columns
    }

    /// Number of products with different matrices: batches or (token, expert) pairs.
    pub(crate) fn repeats(&self) -> usize {
        let batches = self.batch.as_ref().map_or(1, BatchStrides::count);
        batches * self.routing.as_ref().map_or(1, Routing::repeats)
    }

    /// The top-k and the index of its section; `None` if the section is not among `sections`.
    pub(crate) fn top_k_of(&self, sections: &[&SectionPlan<'_>]) -> Option<(&RouterTopK, usize)> {
        let top_k = self.top_k.as_ref()?;
        let column = |section: &&SectionPlan<'_>| section.column == top_k.column;
        Some((top_k, sections.iter().position(column)?))
    }

    /// Groups the sections by the call that computes them.
    pub(crate) fn fusible_sections(&self) -> Vec<Vec<&SectionPlan<'a>>> {
        let mut groups: Vec<Vec<&SectionPlan<'a>>> = Vec::new();
        for section in self.sections.iter().filter(|s| s.rows > 0) {
            // A section with several matrices needs a call of its own.
            let fits = |group: &&mut Vec<&SectionPlan<'a>>| section.parts.len() == 1 && group[0].can_fuse(section);
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

    /// Rows of an operand of any shape with the given strides. `offsets` are the other distances between row starts.
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
    /// Creates a section without its extra inputs; `numbers` are the first operands of its matrices.
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
                    "a matrix has shape {shape:?}, expected {columns} columns and {rows:?} rows"
                ));
            }
            rows = Some(shape[0]);
            parts.push(part);
        }
        let Some(rows) = rows else {
            return size("a section without a matrix".to_string());
        };
        if parts.iter().any(|p| p.planes.kind() != parts[0].planes.kind()) {
            return size("the matrices of one section have different formats".to_string());
        }
        let sums = &section.epilogue.inputs[..parts.len().min(section.epilogue.inputs.len())];
        if sums.len() < parts.len() || sums.iter().any(|d| !d.is_float()) {
            return size(format!("the epilogue has inputs {sums:?} for {} sums", parts.len()));
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

/// Returns a matrix and its shape.
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

/// Returns the norm's weight.
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
