//! Weights stored in a few bits per value.

use refrain_kernels::quantised::{QuantFormat, Zero};

use crate::{Array, DType, Primitive};

/// A matrix `[N, K]` quantised along its rows, as planes in the one resident layout of its format.
#[derive(Clone, Debug)]
pub struct Quantised {
    /// How values are stored.
    pub format: QuantFormat,
    /// u32 `[N, K · bits / 32]`: value k of a row at bit `k · bits`, low bits first.
    pub quants: Array,
    /// `[N, K / group]`, f16, bf16 or f32.
    pub scales: Array,
    /// `[N, K / group]` where the format has them.
    pub biases: Option<Array>,
}

impl Quantised {
    /// N: rows of the matrix.
    pub fn rows(&self) -> usize {
        self.quants.dim(0)
    }

    /// K: values per row.
    pub fn columns(&self) -> usize {
        self.quants.dim(1) * 32 / self.format.bits as usize
    }

    fn planes(&self) -> Vec<&Array> {
        [&self.quants, &self.scales].into_iter().chain(&self.biases).collect()
    }

    fn fault(&self) -> Option<String> {
        let groups = [self.rows(), self.columns() / self.format.group as usize];
        let planes = self.planes();
        if let Some(plane) = planes[1..].iter().find(|p| *p.shape() != groups) {
            return Some(format!("scales and biases are {groups:?}, not {:?}", plane.shape()));
        }
        (self.biases.is_some() != (self.format.zero == Zero::Bias)).then(|| {
            format!(
                "{} {} biases",
                self.format,
                if self.biases.is_some() { "has no" } else { "needs" }
            )
        })
    }

    /// x `[.., K]` · Wᵀ → `[.., N]`, f32.
    #[track_caller]
    pub fn matmul(&self, x: &Array) -> Array {
        if let Some(what) = self.fault() {
            return Array::invalid(&self.quants, "quant_matmul", what);
        }
        let Some((&k, outer)) = x.shape().split_last().filter(|&(&k, _)| k == self.columns()) else {
            return Array::invalid(
                x,
                "quant_matmul",
                format!("{:?} does not meet rows of {}", x.shape(), self.columns()),
            );
        };
        let tokens: usize = outer.iter().product();
        let flat = x.reshape(&[tokens as isize, k as isize]);
        let inputs: Vec<&Array> = [&flat].into_iter().chain(self.planes()).collect();
        let primitive = Primitive::QuantMatmul { format: self.format };
        let product = Array::lazy(primitive, &inputs, &[tokens, self.rows()], DType::F32);
        let shape: Vec<isize> = outer
            .iter()
            .map(|&n| n as isize)
            .chain([self.rows() as isize])
            .collect();
        product.reshape(&shape)
    }

    /// Rows `indices` (u32 or i32 `[T]`), dequantised → f32 `[T, K]`. An index outside gives zeros.
    #[track_caller]
    pub fn take(&self, indices: &Array) -> Array {
        if let Some(what) = self.fault() {
            return Array::invalid(&self.quants, "quant_take", what);
        }
        if indices.rank() != 1 || !matches!(indices.dtype(), DType::U32 | DType::I32) {
            return Array::invalid(
                indices,
                "quant_take",
                format!("{}{:?} are not indices [T]", indices.dtype(), indices.shape()),
            );
        }
        let inputs: Vec<&Array> = self.planes().into_iter().chain([indices]).collect();
        let shape = [indices.dim(0), self.columns()];
        Array::lazy(
            Primitive::QuantTake { format: self.format },
            &inputs,
            &shape,
            DType::F32,
        )
    }
}
