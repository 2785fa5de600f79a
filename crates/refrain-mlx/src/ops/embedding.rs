//! Rows of quantised matrices: embeddings of tokens.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite, QuantFormat, Quantised};

use super::quantised::{Mode, dequantize};
use super::update::{take, wrapped};
use crate::lowering::rounded;
use crate::shape::signed;
use crate::{Result, Value};

/// Rows of a quantised matrix, chosen by indices, with their values: what [`dequantize`] makes of the rows of its planes.
/// Read by one kernel as they are stored, if there is one for the mode.
///
/// # Errors
/// Fails if settings, shapes or dtypes do not fit.
pub fn quantized_rows(
    indices: &Value,
    [w, scales]: [&Value; 2],
    biases: Option<&Value>,
    group: Option<i64>,
    bits: Option<i64>,
    mode: &str,
) -> Result<Value> {
    const OP: &str = "dequantize";
    let settings = Mode::of(OP, group, bits, mode)?;
    settings.check(OP, w, scales, biases)?;
    let is_table = w.ndim() == 2 && w.size() > 0 && indices.ndim() > 0;
    let format = settings.format(scales, biases).filter(|_| is_table);
    let Some(format) = format else {
        let row = |plane: &Value| take(plane, indices, Some(0));
        let biases = biases.map(row).transpose()?;
        return dequantize(&row(w)?, &row(scales)?, biases.as_ref(), group, bits, mode, None);
    };
    let indices = wrapped(OP, indices, w.shape()[0])?;
    let shape = [indices.shape(), &[settings.columns(w)]].concat();
    let planes = [w, scales].into_iter().chain(biases).map(Value::array);
    let inputs: Vec<&Array> = [&indices].into_iter().chain(planes).collect();
    let dtype = settings.dtype(scales).stored()?;
    Value::of(Array::composed(Rows { format, dtype }, &inputs, None, &shape, dtype))
}

/// (indices `[..]`, quants, scales, {biases}) → dequantised rows, `[.., K]`.
#[derive(Hash, Debug)]
struct Rows {
    format: QuantFormat,
    dtype: refrain::DType,
}

impl Composite for Rows {
    fn name(&self) -> &'static str {
        "quantized_rows"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        let [indices, planes @ ..] = inputs else {
            unreachable!("there are three arrays")
        };
        let rows = Quantised::of_planes(self.format, planes).take(&indices.reshape(&[-1]));
        let mut shape = signed(indices.shape());
        shape.push(rows.dim(-1) as isize);
        rounded(&rows.reshape(&shape), self.dtype)
    }
}
