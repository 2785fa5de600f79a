//! Row lookup in quantised matrices.

use std::hash::{Hash, Hasher};

use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::{self, QuantFormat};

use super::CallSite;
use super::quantised::{Quantised, check_planes};
use super::take::is_index;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, spec,
};
use crate::{Array, DType};

/// (quants, scales, {biases}, indices `[T]`) → dequantised rows, `[T, K]`.
#[derive(Hash, Debug)]
struct QuantTake {
    /// The quantised format of the table.
    format: QuantFormat,
}

impl Operation for QuantTake {
    fn name(&self) -> &'static str {
        "quant_take"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let Some((indices, planes)) = inputs.split_last() else {
            return Err("it needs a quantised matrix and indices".to_string());
        };
        check_planes(&self.format, planes)?;
        if indices.rank() != 1 || !is_index(indices.dtype) {
            return Err(format!("indices must be u32 or i32 [T], not {indices}"));
        }
        Ok(vec![ArraySpec::new(
            &[indices.dim(0), self.format.columns(planes[0].dim(1))],
            DType::F32,
        )])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let ([quants, scales], biases, [indices, out]) = spec::operands_with_optional(operands);
        let call = quantised::take_rows(traits, &self.format, quants, scales, biases, indices, out)?;
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let indices = x.i32(x.count() - 1);
            let matrix = x.matrix(WeightStorage::Quantised(self.format), 0);
            Values::F32(dequantised_rows(&matrix.rows(), &indices))
        });
    }

    fn detail(&self) -> String {
        format!(" {}", self.format)
    }

    fn rows_read(&self, operands: &[OperandSpec]) -> Option<[usize; 2]> {
        let out = operands.last()?;
        Some([out.layout.shape[0], operands[0].layout.shape[0]])
    }
}

/// Rows `indices` of a matrix; zeros for an index out of range.
fn dequantised_rows(matrix: &dyn WeightRows, indices: &[i32]) -> Vec<f32> {
    let mut out = vec![0.0; indices.len() * matrix.columns()];
    for (row, &index) in out.chunks_exact_mut(matrix.columns()).zip(indices) {
        if let Some(index) = usize::try_from(index).ok().filter(|&i| i < matrix.count()) {
            matrix.read(index, row);
        }
    }
    out
}

impl Quantised {
    /// Rows `indices` (u32 or i32 `[T]`), dequantised → f32 `[T, K]`. An index out of range gives zeros. Invalid if the
    /// planes or the indices do not fit.
    #[track_caller]
    pub fn take(&self, indices: &Array) -> Array {
        let inputs: Vec<&Array> = self.planes().into_iter().chain([indices]).collect();
        CallSite::new("quant_take").apply(QuantTake { format: self.format }, &inputs)
    }
}
