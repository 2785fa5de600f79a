//! `Display` for arrays.

use std::fmt;

use refrain_kernels::Values;

use crate::{Array, DType, Error, Layout};

/// Arrays of more elements are abbreviated: only the first and last few of each dimension are printed.
const MAX_FULL_ELEMENTS: usize = 1000;
/// Elements printed at each end of an abbreviated dimension.
const EDGE_ELEMENTS: usize = 3;

impl fmt::Display for Array {
    /// Prints the elements in brackets, one line per row, evaluated if necessary. Floats have 4 decimals, or as many
    /// as the format says (`{:.2}`). If evaluation fails, the error is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ElementText::of(self, f.precision().unwrap_or(4)) {
            Ok(text) => text.write(f, 0, 0),
            Err(error) => write!(f, "Array(invalid: {error})"),
        }
    }
}

/// Formats the elements of an array.
struct ElementText<'a> {
    shape: &'a [usize],
    values: Values,
    is_bool: bool,
    /// Decimals of floats, and whether they are so large or small that all are printed with an exponent.
    decimals: usize,
    exponents: bool,
    /// Width in characters of the widest printed element.
    width: usize,
}

impl<'a> ElementText<'a> {
    fn of(array: &'a Array, decimals: usize) -> Result<ElementText<'a>, Error> {
        let bytes = array.to_bytes()?;
        let mut text = ElementText {
            shape: array.shape(),
            values: Values::load(array.dtype(), &Layout::contiguous(array.shape()), &bytes),
            is_bool: array.dtype() == DType::Bool,
            decimals,
            exponents: false,
            width: 0,
        };
        let mut shown = vec![];
        text.printed_indices(0, 0, &mut shown);
        if let Values::F32(values) = &text.values {
            let sizes = shown.iter().map(|&index| values[index].abs()).filter(|x| x.is_finite());
            text.exponents = sizes.clone().any(|x| x >= 1e7) || sizes.clone().any(|x| x > 0.0 && x < 1e-4);
        }
        text.width = shown.iter().map(|&index| text.element(index).len()).max().unwrap_or(0);
        Ok(text)
    }

    /// Indices of dimension `dim` that are printed: all, or those at its ends.
    fn indices(&self, dim: usize) -> impl Iterator<Item = usize> + use<> {
        let n = self.shape[dim];
        let all = self.values.len() <= MAX_FULL_ELEMENTS || n <= 2 * EDGE_ELEMENTS;
        let [first, last] = if all { [n, 0] } else { [EDGE_ELEMENTS, EDGE_ELEMENTS] };
        (0..first).chain(n - last..n)
    }

    /// Row-major indices of the printed elements below element `at` of the first `dim` dimensions.
    fn printed_indices(&self, dim: usize, at: usize, shown: &mut Vec<usize>) {
        if dim == self.shape.len() {
            shown.push(at);
            return;
        }
        for index in self.indices(dim) {
            self.printed_indices(dim + 1, at * self.shape[dim] + index, shown);
        }
    }

    fn element(&self, index: usize) -> String {
        let decimals = self.decimals;
        match &self.values {
            Values::F32(values) if self.exponents => format!("{:.decimals$e}", values[index]),
            Values::F32(values) => format!("{:.decimals$}", values[index]),
            Values::I32(values) => values[index].to_string(),
            Values::U32(values) if self.is_bool => (values[index] != 0).to_string(),
            Values::U32(values) => values[index].to_string(),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, dim: usize, at: usize) -> fmt::Result {
        if dim == self.shape.len() {
            return write!(f, "{:>1$}", self.element(at), self.width);
        }
        f.write_str("[")?;
        let inner = self.shape.len() - dim - 1;
        let mut next = 0;
        for index in self.indices(dim) {
            if index > 0 {
                let gap = if index > next { " …," } else { "" };
                match inner {
                    0 => write!(f, ",{gap} ")?,
                    _ => write!(f, ",{gap}{}{}", "\n".repeat(inner), " ".repeat(dim + 1))?,
                }
            }
            self.write(f, dim + 1, at * self.shape[dim] + index)?;
            next = index + 1;
        }
        f.write_str("]")
    }
}
