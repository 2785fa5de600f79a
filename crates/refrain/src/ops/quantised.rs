//! Quantised weights.

use refrain_kernels::Unsupported;
use refrain_kernels::quantised::{QuantFormat, Scales};

use crate::operation::prelude::ArraySpec;
use crate::{Array, DType};

/// A matrix `[N, K]` quantised along its rows, as planes in the device layout of its format. Operations check that the
/// planes fit each other, and otherwise return an invalid array.
#[derive(Clone, Debug)]
pub struct Quantised {
    /// How values are stored.
    pub format: QuantFormat,
    /// u32 `[N, K · bits / 32]`: value k of a row at bit `k · bits`, low bits first.
    pub quants: Array,
    /// `[N, K / group]` in f16, bf16 or f32, or u8 exponents; or u32 records `[N, K / 256 · 5]` for formats with two
    /// levels of scales.
    pub scales: Array,
    /// `[N, K / group]` in the scales' dtype, if the format has biases.
    pub biases: Option<Array>,
}

/// Checks that the arrays are the planes of a matrix of this format: quants, scales and, if it has them, biases.
///
/// # Errors
/// What does not fit, as a message for the user.
pub fn check_planes(format: &QuantFormat, planes: &[&ArraySpec]) -> Result<(), String> {
    let [quants, scales, biases @ ..] = planes else {
        return Err(format!(
            "quants and scales are required, but there are {} planes",
            planes.len()
        ));
    };
    if quants.rank() != 2 || quants.dtype != DType::U32 {
        return Err(format!("quants must be u32 [N, K], not {quants}"));
    }
    let columns = format.columns(quants.dim(1));
    (format.check(columns)).map_err(|error| Unsupported::from(error).to_string())?;
    if format.words(columns) != quants.dim(1) {
        return Err(format!(
            "rows of {} words do not hold a whole number of values",
            quants.dim(1)
        ));
    }
    if biases.len() != usize::from(format.has_biases()) {
        let has = if biases.is_empty() { "needs" } else { "has no" };
        return Err(format!("{format} {has} biases"));
    }
    let groups = [quants.dim(0), format.scales(columns)];
    let takes = |dtype: DType| dtype.to_scale_type().is_some_and(|stored| format.takes_scales(stored));
    let fits = |plane: &&ArraySpec| plane.shape[..] == groups && takes(plane.dtype) && plane.dtype == scales.dtype;
    let Some(plane) = planes[1..].iter().find(|plane| !fits(plane)) else {
        return Ok(());
    };
    let stored = match format.scales {
        Scales::Float => "floats",
        Scales::Records(_) => "u32",
        Scales::E8M0 => "u8",
    };
    Err(format!(
        "scales and biases must be {stored} {groups:?} of one dtype, not {plane}"
    ))
}

impl Quantised {
    /// The matrix with these [planes](Quantised::planes).
    ///
    /// # Panics
    /// If there are fewer than two.
    pub fn of_planes(format: QuantFormat, planes: &[Array]) -> Quantised {
        Quantised {
            format,
            quants: planes[0].clone(),
            scales: planes[1].clone(),
            biases: planes.get(2).cloned(),
        }
    }

    /// N, the number of rows.
    pub fn rows(&self) -> usize {
        self.quants.dim(0)
    }

    /// K, the number of values per row.
    pub fn columns(&self) -> usize {
        self.format.columns(self.quants.dim(1))
    }

    /// Quants, scales and, if there are any, biases.
    pub fn planes(&self) -> Vec<&Array> {
        [&self.quants, &self.scales].into_iter().chain(&self.biases).collect()
    }
}
