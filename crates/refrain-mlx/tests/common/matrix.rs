//! Random values and quantised matrices of programs in half precision, and the same in f32.

use refrain_mlx::{DType, Value, ops};

pub fn random(shape: &[usize], seed: usize) -> Value {
    let n: usize = shape.iter().product();
    let numbers: Vec<f32> = (0..n)
        .map(|i| ((i * i + 31 * i + 17 * seed) % 101) as f32 / 50.0 - 1.0)
        .collect();
    Value::from_slice(&numbers, shape).expect("it fits")
}

/// The elements as f32.
pub fn read(value: &Value) -> Vec<f32> {
    value
        .cast(DType::F32)
        .expect("it converts")
        .to_vec()
        .expect("it computes")
}

/// The same value in f32, computed.
pub fn exact(value: &Value) -> Value {
    let exact = value.cast(DType::F32).expect("casts");
    refrain_mlx::eval(std::slice::from_ref(&exact)).expect("computes");
    exact
}

/// A matrix of 4 bits per value, with scales and biases in a dtype.
#[derive(Clone)]
pub struct Matrix([Value; 3]);

impl Matrix {
    pub fn of(weight: &Value) -> Matrix {
        let planes = ops::quantize(weight, Some(32), Some(4), "affine").expect("quantises");
        refrain_mlx::eval(&planes).expect("computes");
        Matrix(planes.try_into().expect("three planes"))
    }

    /// The same matrix, with its scales and biases in f32.
    pub fn exact(&self) -> Matrix {
        let [quants, scales, biases] = &self.0;
        Matrix([quants.clone(), exact(scales), exact(biases)])
    }

    pub fn times(&self, x: &Value) -> Value {
        let [quants, scales, biases] = &self.0;
        ops::quantized_matmul(x, quants, scales, Some(biases), true, Some(32), Some(4), "affine").expect("multiplies")
    }
}
