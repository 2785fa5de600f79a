//! Weights stored in a few bits per value.

use refrain_kernels::Unsupported;
use refrain_kernels::quantised::{QuantFormat, Scales};

use crate::operation::ArraySpec;
use crate::{Array, DType};

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
pub fn check_planes(format: &QuantFormat, planes: &[&ArraySpec]) -> Result<(), String> {
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
}
