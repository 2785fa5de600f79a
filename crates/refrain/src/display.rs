//! Arrays as text.

use std::fmt;

use refrain_kernels::Values;

use crate::{Array, DType, Error, Layout};

/// Of more elements than these, the first and last few of each dimension are shown.
const MOST_SHOWN: usize = 1000;
const EDGE: usize = 3;

impl fmt::Display for Array {
    /// The elements in brackets, a line for each row, evaluated if need be; floats with 4 decimals, or as
    /// many as the format says (`{:.2}`). What cannot be evaluated shows its error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Shown::of(self, f.precision().unwrap_or(4)) {
            Ok(text) => text.write(f, 0, 0),
            Err(error) => write!(f, "Array(invalid: {error})"),
        }
    }
}

/// What is shown of an array.
struct Shown<'a> {
    shape: &'a [usize],
    values: Values,
    is_bool: bool,
    /// Decimals, and whether numbers are so large or small that they have an exponent.
    decimals: usize,
    exponents: bool,
    /// Characters of the widest element.
    width: usize,
}

impl<'a> Shown<'a> {
    fn of(array: &'a Array, decimals: usize) -> Result<Shown<'a>, Error> {
        let bytes = array.to_bytes()?;
        let mut text = Shown {
            shape: array.shape(),
            values: Values::load(array.dtype(), &Layout::contiguous(array.shape()), &bytes),
            is_bool: array.dtype() == DType::Bool,
            decimals,
            exponents: false,
            width: 0,
        };
        let mut shown = vec![];
        text.places(0, 0, &mut shown);
        if let Values::F32(values) = &text.values {
            let sizes = shown.iter().map(|&place| values[place].abs()).filter(|x| x.is_finite());
            text.exponents = sizes.clone().any(|x| x >= 1e7) || sizes.clone().any(|x| x > 0.0 && x < 1e-4);
        }
        text.width = shown.iter().map(|&place| text.element(place).len()).max().unwrap_or(0);
        Ok(text)
    }

    /// Indices of dimension `dim` that are shown: all, or those at its ends.
    fn indices(&self, dim: usize) -> impl Iterator<Item = usize> + use<> {
        let n = self.shape[dim];
        let all = self.values.len() <= MOST_SHOWN || n <= 2 * EDGE;
        let [first, last] = if all { [n, 0] } else { [EDGE, EDGE] };
        (0..first).chain(n - last..n)
    }

    /// Numbers of the elements that are shown below element `at` of the first `dim` dimensions.
    fn places(&self, dim: usize, at: usize, shown: &mut Vec<usize>) {
        if dim == self.shape.len() {
            shown.push(at);
            return;
        }
        for index in self.indices(dim) {
            self.places(dim + 1, at * self.shape[dim] + index, shown);
        }
    }

    fn element(&self, place: usize) -> String {
        let decimals = self.decimals;
        match &self.values {
            Values::F32(values) if self.exponents => format!("{:.decimals$e}", values[place]),
            Values::F32(values) => format!("{:.decimals$}", values[place]),
            Values::I32(values) => values[place].to_string(),
            Values::U32(values) if self.is_bool => (values[place] != 0).to_string(),
            Values::U32(values) => values[place].to_string(),
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
