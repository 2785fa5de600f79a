//! The basics: creating arrays, computing with them, reading results, and what an error looks like.
//!
//! ```sh
//! cargo run -p refrain --example arrays
//! ```

use refrain::{Array, Axes, DType, Device, Error, concatenate};

fn main() -> Result<(), Error> {
    run(&Device::cpu())
}

/// Computes on `device`, checks the results and prints them.
///
/// # Errors
/// Returns errors of the evaluation.
pub fn run(device: &Device) -> Result<(), Error> {
    println!("computed by {}", device.name());
    elementwise(device)?;
    views(device)?;
    products(device)?;
    mistakes(device);
    Ok(())
}

/// Operations build a graph; reading evaluates it.
fn elementwise(device: &Device) -> Result<(), Error> {
    let x = Array::from_slice(device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let row = Array::from_slice(device, &[10.0f32, 20.0, 30.0], &[3]);

    let y = (&x * 2.0 + &row).maximum(25.0);
    assert!(!y.is_evaluated(), "nothing is computed before it is needed");
    let values = y.to_vec::<f32>()?;
    assert_eq!(values, [25.0, 25.0, 36.0, 25.0, 30.0, 42.0]);
    println!("max(2x + row, 25) = {values:?}");

    // Operands of different dtypes are promoted to the wider one. Conversions are explicit operations.
    let counts = Array::arange(device, DType::I32, 3);
    let sum = &counts + &row;
    assert_eq!(sum.dtype(), DType::F32);
    let truncated = (&row / 7.0).astype(DType::I32).to_vec::<i32>()?;
    assert_eq!(truncated, [1, 2, 4]);
    println!("row / 7 as integers = {truncated:?}");
    Ok(())
}

/// Permuting, slicing and broadcasting copy nothing: the next operation reads the elements in place.
fn views(device: &Device) -> Result<(), Error> {
    let x = Array::arange(device, DType::F32, 12).reshape(&[3, -1]);
    assert_eq!(x.shape(), [3, 4]);

    let columns = x.transpose().slice(0, 1, 3);
    let values = columns.to_vec::<f32>()?;
    assert_eq!(values, [1.0, 5.0, 9.0, 2.0, 6.0, 10.0]);
    println!("columns 1 and 2 = {values:?}");

    let centred = &x - x.mean(Axes::keepdims(&[-1]));
    let joined = concatenate(&[&centred, &x.slice(0, 0, 1)], 0);
    let values = joined.sum(&[1]).to_vec::<f32>()?;
    assert_eq!(values, [0.0, 0.0, 0.0, 6.0]);
    println!("sums of centred rows, and of the first = {values:?}");
    Ok(())
}

/// Matrix products broadcast their leading dimensions. The largest elements are fetched by index.
fn products(device: &Device) -> Result<(), Error> {
    let rotate = Array::from_slice(device, &[0.0f32, -1.0, 1.0, 0.0], &[2, 2]);
    let points = Array::from_slice(device, &[1.0f32, 0.0, 0.0, 1.0, 2.0, 3.0], &[3, 2, 1]);
    let rotated = rotate.matmul(&points);
    assert_eq!(rotated.shape(), [3, 2, 1]);
    let values = rotated.to_vec::<f32>()?;
    assert_eq!(values, [0.0, 1.0, -1.0, 0.0, -3.0, 2.0]);
    println!("a quarter turn = {values:?}");

    let scores = Array::from_slice(device, &[0.5f32, 4.0, -1.0, 2.0], &[4]);
    let best = scores.top_k(2);
    let (indices, values) = (best.to_vec::<u32>()?, scores.take_along(&best).to_vec::<f32>()?);
    assert_eq!((&indices[..], &values[..]), (&[1, 3][..], &[4.0, 2.0][..]));
    println!("the two largest = {values:?} at {indices:?}");
    Ok(())
}

/// An invalid operation returns an invalid array, and so does every operation on it. Evaluation names the source line.
fn mistakes(device: &Device) {
    let x = Array::zeros(device, DType::F32, &[2, 3]);
    let wrong = x.matmul(&x).exp().sum(&[0]);
    let error = wrong.eval().expect_err("3 columns do not meet 2 rows");
    assert!(matches!(error, Error::Invalid { op: "matmul", .. }));
    println!("an error: {error}");
}
