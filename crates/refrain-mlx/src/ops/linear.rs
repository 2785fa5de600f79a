//! Products.

use crate::shape::{self, signed, tuple};
use crate::{Error, Result, Value, ops, promote};

/// Both operands in their common floating dtype.
fn floats(op: &str, a: &Value, b: &Value) -> Result<(Value, Value)> {
    let dtype = promote(a.dtype(), b.dtype());
    if !dtype.is_floating() {
        let message = format!(
            "[{op}] Only real floating point types are supported but {} and {} were provided which results in {dtype}, \
             which is not a real floating point type.",
            a.dtype(),
            b.dtype()
        );
        return Err(Error::value(message));
    }
    Ok((a.cast(dtype)?, b.cast(dtype)?))
}

/// The matrix product; leading axes broadcast, and a vector is a row on the left and a column on the right.
///
/// # Errors
/// Fails if extents differ, for values without axes, and for integers.
pub fn matmul(a: &Value, b: &Value) -> Result<Value> {
    if a.ndim() == 0 || b.ndim() == 0 {
        let message = "[matmul] Got 0 dimension input. Inputs must have at least one dimension.";
        return Err(Error::value(message));
    }
    let inner = b.shape()[b.ndim().saturating_sub(2)];
    if *a.shape().last().expect("it has axes") != inner {
        let message = format!(
            "[matmul] Last dimension of first input with shape {} must match second to last dimension of second input \
             with shape {}.",
            tuple(a.shape()),
            tuple(b.shape())
        );
        return Err(Error::value(message));
    }
    let (a, b) = floats("matmul", a, b)?;
    Value::of(a.array().matmul(b.array()))
}

/// `alpha` · a·b + `beta` · c.
///
/// # Errors
/// As [`matmul`]; also fails if c does not broadcast.
pub fn addmm(c: &Value, a: &Value, b: &Value, alpha: f64, beta: f64) -> Result<Value> {
    let mut product = matmul(a, b)?;
    let mut added = c.clone();
    if alpha != 1.0 {
        product = ops::multiply(&product.into(), &alpha.into())?;
    }
    if beta != 1.0 {
        added = ops::multiply(&added.into(), &beta.into())?;
    }
    ops::add(&product.into(), &added.into())
}

/// Sums of products over the last axes.
///
/// # Errors
/// Fails if the last extents differ.
pub fn inner(a: &Value, b: &Value) -> Result<Value> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return ops::multiply(&a.into(), &b.into());
    }
    if a.shape().last() != b.shape().last() {
        return Err(Error::value("[inner] a and b must have the same last dimension."));
    }
    let last = [a.ndim() as i64 - 1];
    tensordot(a, b, [&last, &[b.ndim() as i64 - 1]])
}

/// All products of the elements of two flattened values.
///
/// # Errors
/// Fails if the promoted dtype is not supported.
pub fn outer(a: &Value, b: &Value) -> Result<Value> {
    let column = ops::reshape(a, &[a.size() as i64, 1])?;
    ops::multiply(&column.into(), &ops::flatten(b, 0, -1)?.into())
}

/// Sums of products over pairs of axes.
///
/// # Errors
/// Fails if axes do not exist, or if their extents differ.
pub fn tensordot(a: &Value, b: &Value, axes: [&[i64]; 2]) -> Result<Value> {
    let resolve = |value: &Value, axes: &[i64]| {
        axes.iter()
            .map(|&axis| shape::axis("tensordot", axis, value.ndim()))
            .collect::<Result<Vec<_>>>()
    };
    let (summed_a, summed_b) = (resolve(a, axes[0])?, resolve(b, axes[1])?);
    let extents = |value: &Value, axes: &[usize]| axes.iter().map(|&axis| value.shape()[axis]).collect::<Vec<_>>();
    if extents(a, &summed_a) != extents(b, &summed_b) {
        return Err(Error::value(
            "[tensordot] a and b must have the same shape on the contracted axes.",
        ));
    }
    let kept = |value: &Value, summed: &[usize]| (0..value.ndim()).filter(|d| !summed.contains(d)).collect::<Vec<_>>();
    let (kept_a, kept_b) = (kept(a, &summed_a), kept(b, &summed_b));
    let (a, b) = floats("tensordot", a, b)?;
    let product = |value: &Value, axes: &[usize]| extents(value, axes).iter().product::<usize>() as isize;
    let matrix = |value: &Value, [rows, columns]: [&[usize]; 2]| {
        let order: Vec<isize> = [rows, columns].concat().into_iter().map(|d| d as isize).collect();
        let shape = [product(value, rows), product(value, columns)];
        value.array().permute(&order).reshape(&shape)
    };
    let left = matrix(&a, [&kept_a, &summed_a]);
    let right = matrix(&b, [&summed_b, &kept_b]);
    let shape = [extents(&a, &kept_a), extents(&b, &kept_b)].concat();
    Value::of(left.matmul(&right).reshape(&signed(&shape)))
}

/// The Kronecker product.
///
/// # Errors
/// Fails for values without elements, or if the promoted dtype is not supported.
pub fn kron(a: &Value, b: &Value) -> Result<Value> {
    if a.size() == 0 || b.size() == 0 {
        return Err(Error::value("[kron] Input arrays cannot be empty."));
    }
    let rank = a.ndim().max(b.ndim());
    let padded = |value: &Value| [vec![1; rank - value.ndim()], value.shape().to_vec()].concat();
    let (shape_a, shape_b) = (padded(a), padded(b));
    let spread = |shape: &[usize], first: bool| -> Vec<i64> {
        let pair = |&n: &usize| if first { [n as i64, 1] } else { [1, n as i64] };
        shape.iter().flat_map(pair).collect()
    };
    let a = ops::reshape(a, &spread(&shape_a, true))?;
    let b = ops::reshape(b, &spread(&shape_b, false))?;
    let shape: Vec<i64> = shape_a.iter().zip(&shape_b).map(|(n, m)| (n * m) as i64).collect();
    ops::reshape(&ops::multiply(&a.into(), &b.into())?, &shape)
}

/// Einstein summation in the notation of `numpy.einsum`; letters only.
///
/// # Errors
/// Fails if the subscripts do not fit the operands, and for letters that occur twice in one operand.
pub fn einsum(subscripts: &str, operands: &[Value]) -> Result<Value> {
    let invalid = |what: String| Error::value(format!("[einsum] {what}"));
    let subscripts: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match subscripts.split_once("->") {
        Some((inputs, output)) => (inputs.to_string(), Some(output.to_string())),
        None => (subscripts.clone(), None),
    };
    let inputs: Vec<Vec<char>> = inputs.split(',').map(|input| input.chars().collect()).collect();
    if inputs.len() != operands.len() {
        return Err(invalid(format!(
            "Number of operands must match the number of input characters: {} and {}.",
            operands.len(),
            inputs.len()
        )));
    }
    let mut letters: Vec<char> = inputs.concat();
    letters.sort_unstable();
    letters.dedup();
    if let Some(letter) = letters.iter().find(|letter| !letter.is_ascii_alphabetic()) {
        return Err(Error::not_implemented(format!(
            "[einsum] {letter:?} is not supported in subscripts."
        )));
    }
    let once = |letter: &&char| inputs.iter().flatten().filter(|c| c == letter).count() == 1;
    let output: Vec<char> = match output {
        Some(output) => output.chars().collect(),
        None => letters.iter().filter(once).copied().collect(),
    };
    // Every operand gets an axis for each letter: first those of the result, then the summed ones.
    let summed: Vec<char> = letters
        .iter()
        .filter(|letter| !output.contains(letter))
        .copied()
        .collect();
    let order = [output.clone(), summed.clone()].concat();
    let mut product: Option<Value> = None;
    for (input, operand) in inputs.iter().zip(operands) {
        if input.len() != operand.ndim() {
            return Err(invalid(format!(
                "{} subscripts for an operand with {} dimensions.",
                input.len(),
                operand.ndim()
            )));
        }
        let aligned = aligned(operand, input, &order)?;
        product = Some(match product {
            None => aligned,
            Some(product) => ops::multiply(&product.into(), &aligned.into())?,
        });
    }
    let product = product.ok_or_else(|| invalid("No operands provided.".to_string()))?;
    let axes: Vec<i64> = (output.len()..order.len()).map(|d| d as i64).collect();
    if axes.is_empty() {
        Ok(product)
    } else {
        ops::sum(&product, Some(&axes), false)
    }
}

/// An operand with an axis for each letter of `order`, of extent 1 if the operand does not have the letter.
fn aligned(operand: &Value, input: &[char], order: &[char]) -> Result<Value> {
    let mut axes = Vec::with_capacity(input.len());
    let mut shape = Vec::with_capacity(order.len());
    for letter in order {
        let positions: Vec<usize> = (0..input.len()).filter(|&d| input[d] == *letter).collect();
        match positions[..] {
            [] => shape.push(1),
            [d] => {
                axes.push(d as i64);
                shape.push(operand.shape()[d] as i64);
            }
            _ => {
                return Err(Error::not_implemented(
                    "[einsum] Repeated letters in one operand are not supported.",
                ));
            }
        }
    }
    ops::reshape(&ops::transpose(operand, Some(&axes))?, &shape)
}
