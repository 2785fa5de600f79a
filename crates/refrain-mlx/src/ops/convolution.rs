//! Convolutions, as sums over the positions of the kernel.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite};

use crate::{Error, Number, Operand, Result, Value, ops, promote};

/// A convolution of one dimension: `[N, L, C]` with weights `[O, K, C / groups]` → `[N, L', O]`.
///
/// # Errors
/// As [`conv_general`].
pub fn conv1d(input: &Value, weight: &Value, stride: i64, padding: i64, dilation: i64, groups: i64) -> Result<Value> {
    if input.ndim() != 3 {
        let message = format!(
            "[conv] Invalid input array with {} dimensions: 3 are expected.",
            input.ndim()
        );
        return Err(Error::value(message));
    }
    conv_general(input, weight, &[stride], &[(padding, padding)], &[dilation], groups)
}

/// A convolution of any number of dimensions: `[N, ..L, C]` with weights `[O, ..K, C / groups]` → `[N, ..L', O]`.
///
/// # Errors
/// Fails if shapes do not fit, or if the promoted dtype is not floating.
pub fn conv_general(
    input: &Value,
    weight: &Value,
    strides: &[i64],
    padding: &[(i64, i64)],
    dilation: &[i64],
    groups: i64,
) -> Result<Value> {
    let dimensions = input.ndim().saturating_sub(2);
    let dtype = promote(input.dtype(), weight.dtype());
    let problem = Problem::of(input, weight, [strides, dilation], groups)?;
    if !dtype.is_floating() || padding.len() != dimensions {
        return Err(Error::value(format!(
            "[conv] Invalid arguments for a convolution of {dtype}."
        )));
    }
    let widths = [&[(0, 0)], padding, &[(0, 0)]].concat();
    let zeros = ops::Padding::Constant(Operand::Number(Number::Float(0.0)));
    let padded = ops::pad(&input.cast(dtype)?, &widths, &zeros)?;
    let (lengths, kernel) = (&padded.shape()[1..=dimensions], &weight.shape()[1..=dimensions]);
    if kernel.contains(&0) {
        return Err(Error::value("[conv] The kernel has no elements."));
    }
    for (d, &n) in lengths.iter().enumerate() {
        let reach = problem.reach(kernel, d);
        if n < reach {
            let message = format!("[conv] The kernel reaches over {reach} elements, but there are {n}.");
            return Err(Error::value(message));
        }
    }
    let extents = problem.extents(lengths, kernel);
    let shape = [&input.shape()[..1], &extents, &weight.shape()[..1]].concat();
    let inputs = [padded.array(), weight.array()];
    let dtype = dtype.stored()?;
    Value::of(Array::composed(
        Convolution { problem, dtype },
        &inputs,
        None,
        &shape,
        dtype,
    ))
}

/// (Padded input, weights) → the convolution.
#[derive(Hash, Debug)]
struct Convolution {
    problem: Problem,
    /// The result's dtype.
    dtype: refrain::DType,
}

impl Composite for Convolution {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        if self.problem.is_short_and_depthwise(&inputs[1]) {
            let taps = inputs[1].reshape(&[inputs[1].dim(0) as isize, -1]);
            return refrain_lm::depthwise_conv(&inputs[0], &taps).astype(self.dtype);
        }
        // Sums are accumulated in f32 and rounded once.
        let [padded, weight] = [&inputs[0], &inputs[1]].map(|x| x.astype(refrain::DType::F32));
        let kernel = &weight.shape()[1..weight.rank() - 1];
        let positions: usize = kernel.iter().product();
        let extents = self.problem.extents(&padded.shape()[1..=kernel.len()], kernel);
        let term = |position| self.problem.term(&padded, &weight, &extents, position);
        let total = (1..positions).fold(term(0), |total, position| total + term(position));
        total.astype(self.dtype)
    }
}

/// Checked arguments of a convolution.
#[derive(Hash, Debug)]
struct Problem {
    strides: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
}

impl Problem {
    fn of(input: &Value, weight: &Value, [strides, dilation]: [&[i64]; 2], groups: i64) -> Result<Problem> {
        let dimensions = input.ndim().saturating_sub(2);
        let positive = |numbers: &[i64]| -> Option<Vec<usize>> {
            let numbers: Option<Vec<usize>> = numbers
                .iter()
                .map(|&n| usize::try_from(n).ok().filter(|&n| n > 0))
                .collect();
            numbers.filter(|numbers| numbers.len() == dimensions)
        };
        let fits = input.ndim() == weight.ndim() && dimensions > 0;
        let arguments = (
            positive(strides),
            positive(dilation),
            usize::try_from(groups).ok().filter(|&n| n > 0),
        );
        let (true, (Some(strides), Some(dilation), Some(groups))) = (fits, arguments) else {
            return Err(Error::value(
                "[conv] Strides, dilation and groups must be positive and fit the input.",
            ));
        };
        let (channels, per_group) = (input.shape()[dimensions + 1], weight.shape()[dimensions + 1]);
        if per_group * groups != channels || !weight.shape()[0].is_multiple_of(groups) {
            let message = format!(
                "[conv] Expect the input channels in the input and weight array to match but got shapes - input: {} and \
                 weight: {}.",
                crate::shape::tuple(input.shape()),
                crate::shape::tuple(weight.shape())
            );
            return Err(Error::value(message));
        }
        Ok(Problem {
            strides,
            dilation,
            groups,
        })
    }

    /// Whether each channel has a kernel of its own, along one dimension, that one operation takes.
    fn is_short_and_depthwise(&self, weight: &Array) -> bool {
        let &[outputs, taps, per_group] = weight.shape() else {
            return false;
        };
        let each_alone = per_group == 1 && outputs == self.groups;
        each_alone && taps <= refrain_lm::MAX_DEPTHWISE_TAPS && self.strides == [1] && self.dilation == [1]
    }

    /// Number of elements over which a kernel reaches along a dimension.
    fn reach(&self, kernel: &[usize], d: usize) -> usize {
        self.dilation[d] * (kernel[d] - 1) + 1
    }

    /// Extents of the result of a kernel over dimensions of these lengths.
    fn extents(&self, lengths: &[usize], kernel: &[usize]) -> Vec<usize> {
        let extent = |d: usize| (lengths[d] - self.reach(kernel, d)) / self.strides[d] + 1;
        (0..lengths.len()).map(extent).collect()
    }

    /// The products with the weights at one position of the kernel.
    fn term(&self, padded: &Array, weight: &Array, extents: &[usize], position: usize) -> Array {
        let dimensions = extents.len();
        let (mut x, mut w, mut rest) = (padded.clone(), weight.clone(), position);
        for d in (0..dimensions).rev() {
            let kernel = weight.shape()[d + 1];
            let k = rest % kernel;
            rest /= kernel;
            let start = k * self.dilation[d];
            let stop = start + (extents[d] - 1) * self.strides[d] + 1;
            let axis = d as isize + 1;
            x = x.slice_by(axis, start, stop, self.strides[d]);
            w = w.slice(axis, k, k + 1);
        }
        let (outputs, per_group) = (weight.shape()[0], weight.shape()[dimensions + 1]);
        let per_output = outputs / self.groups;
        if per_group == 1 && per_output == 1 {
            return x * w.reshape(&[-1]);
        }
        // The groups are a batch: [groups, N · L', C / groups] with [groups, C / groups, O / groups].
        let rows: usize = x.shape()[..=dimensions].iter().product();
        let [rows, groups, inner, outer] = [rows, self.groups, per_group, per_output].map(|n| n as isize);
        let left = x.reshape(&[rows, groups, inner]).swap_axes(0, 1);
        let right = w.reshape(&[groups, outer, inner]).swap_axes(1, 2);
        let product = left.matmul(&right).swap_axes(0, 1);
        let shape: Vec<isize> = x.shape()[..=dimensions]
            .iter()
            .copied()
            .chain([outputs])
            .map(|n| n as isize)
            .collect();
        product.reshape(&shape)
    }
}
