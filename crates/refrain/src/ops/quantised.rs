//! Weights stored in a few bits per value.

use refrain_kernels::Unsupported;
use refrain_kernels::quantised::{QuantFormat, Scales};

use super::Caller;
use crate::operation::ArraySpec;
use crate::{Array, DType, Primitive};

/// A matrix `[N, K]` quantised along its rows, as planes in the one resident layout of its format.
/// Operations check that the planes fit each other, and give an invalid array where they do not.
#[derive(Clone, Debug)]
pub struct Quantised {
    /// How values are stored.
    pub format: QuantFormat,
    /// u32 `[N, K · bits / 32]`: value k of a row at bit `k · bits`, low bits first.
    pub quants: Array,
    /// `[N, K / group]`, f16, bf16 or f32, or u8 where they are exponents; or u32 records `[N, K / 256 · 5]` where the
    /// format's scales have two levels.
    pub scales: Array,
    /// `[N, K / group]` in the scales' dtype, where the format has them.
    pub biases: Option<Array>,
}

/// Whether quants, scales and, if there are any, biases are the planes of a matrix of this format.
///
/// # Errors
/// What does not fit, in words for the caller.
pub fn check_planes(format: &QuantFormat, planes: &[ArraySpec]) -> Result<(), String> {
    let [quants, scales, biases @ ..] = planes else {
        return Err(format!("{} planes are too few", planes.len()));
    };
    if quants.rank() != 2 || quants.dtype != DType::U32 {
        return Err(format!("quants are u32 [N, K], not {quants}"));
    }
    let columns = format.columns(quants.dim(1));
    (format.check(columns)).map_err(|error| Unsupported::from(error).to_string())?;
    if format.words(columns) != quants.dim(1) {
        return Err(format!(
            "rows of {} words hold no whole number of values",
            quants.dim(1)
        ));
    }
    if biases.len() != usize::from(format.has_biases()) {
        let has = if biases.is_empty() { "needs" } else { "has no" };
        return Err(format!("{format} {has} biases"));
    }
    let groups = [quants.dim(0), format.scales(columns)];
    let takes = |dtype: DType| dtype.as_scales().is_some_and(|stored| format.takes_scales(stored));
    let fits = |plane: &&ArraySpec| plane.shape == groups && takes(plane.dtype) && plane.dtype == scales.dtype;
    let Some(plane) = planes[1..].iter().find(|plane| !fits(plane)) else {
        return Ok(());
    };
    let stored = match format.scales {
        Scales::Float => "floats",
        Scales::Records(_) => "u32",
        Scales::E8M0 => "u8",
    };
    Err(format!(
        "scales and biases are {stored} {groups:?} of one dtype, not {plane}"
    ))
}

impl Quantised {
    /// N: rows of the matrix.
    pub fn rows(&self) -> usize {
        self.quants.dim(0)
    }

    /// K: values per row.
    pub fn columns(&self) -> usize {
        self.format.columns(self.quants.dim(1))
    }

    /// Quants, scales and biases, if there are any.
    pub fn planes(&self) -> Vec<&Array> {
        [&self.quants, &self.scales].into_iter().chain(&self.biases).collect()
    }

    /// What is wrong with the planes.
    fn fault(&self) -> Option<String> {
        let planes: Vec<ArraySpec> = self.planes().into_iter().map(|plane| plane.spec().clone()).collect();
        check_planes(&self.format, &planes).err()
    }

    /// x (floats `[.., K]`) · Wᵀ → `[.., N]`, f32. Invalid when the planes or x do not fit.
    #[track_caller]
    pub fn matmul(&self, x: &Array) -> Array {
        let operation = Caller::new("quant_matmul");
        let inputs: Vec<&Array> = self.planes().into_iter().chain([x]).collect();
        if let Some(what) = self.fault() {
            return operation.invalid(&inputs, what);
        }
        let columns = self.columns();
        let fits = |&(&k, _): &(&usize, _)| k == columns && x.dtype().is_float();
        let Some((&k, outer)) = x.shape().split_last().filter(fits) else {
            let what = format!("{}{:?} does not meet rows of {columns} values", x.dtype(), x.shape());
            return operation.invalid(&inputs, what);
        };
        let tokens: usize = outer.iter().product();
        let flat = operation.reshape(x, &[tokens, k]);
        let inputs: Vec<&Array> = [&flat].into_iter().chain(self.planes()).collect();
        let primitive = Primitive::QuantMatmul { format: self.format };
        let product = operation.node(primitive, &inputs, &[tokens, self.rows()], DType::F32);
        let shape: Vec<usize> = outer.iter().copied().chain([self.rows()]).collect();
        operation.reshape(&product, &shape)
    }

    /// Rows `indices` (u32 or i32 `[T]`), dequantised → f32 `[T, K]`. An index outside gives zeros.
    /// Invalid when the planes or the indices do not fit.
    #[track_caller]
    pub fn take(&self, indices: &Array) -> Array {
        let operation = Caller::new("quant_take");
        let inputs: Vec<&Array> = self.planes().into_iter().chain([indices]).collect();
        if let Some(what) = self.fault() {
            return operation.invalid(&inputs, what);
        }
        if indices.rank() != 1 || !matches!(indices.dtype(), DType::U32 | DType::I32) {
            let what = format!("{}{:?} are not indices [T]", indices.dtype(), indices.shape());
            return operation.invalid(&inputs, what);
        }
        let shape = [indices.dim(0), self.columns()];
        operation.node(
            Primitive::QuantTake { format: self.format },
            &inputs,
            &shape,
            DType::F32,
        )
    }
}
