//! Helpers of tests.

use refrain_mlx::{DType, Value};

/// A value of floats.
pub fn floats(elements: &[f32], shape: &[usize]) -> Value {
    Value::from_slice(elements, shape).expect("it fits")
}

/// A value of integers.
pub fn integers(elements: &[i32], shape: &[usize]) -> Value {
    Value::from_slice(elements, shape).expect("it fits")
}

/// 0, 1, 2, … in a shape.
pub fn counted(shape: &[usize]) -> Value {
    let n: usize = shape.iter().product();
    integers(&(0..n as i32).collect::<Vec<_>>(), shape)
}

/// The elements as f32.
pub fn read(value: &Value) -> Vec<f32> {
    value
        .cast(DType::F32)
        .expect("it converts")
        .to_vec()
        .expect("it computes")
}
