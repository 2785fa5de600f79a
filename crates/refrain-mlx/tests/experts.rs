//! Products with matrices that indices choose, as mlx-lm's mixtures of experts compute them.

mod common;

use common::{floats, integers, read};
use refrain::Function;
use refrain_mlx::{DType, Operand, Value, ops};

/// The formula that the values of MLX 0.32.4 were computed with: multiples of `factor` modulo 41, from −1 on.
fn ramp(shape: &[usize], factor: usize) -> Value {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> = (0..count).map(|n| ((n * factor) % 41) as f32 / 20.0 - 1.0).collect();
    floats(&elements, shape)
}

/// Pseudorandom numbers below `end`.
fn random(count: usize, end: u64, seed: u64) -> Vec<u64> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % end
    };
    (0..count).map(|_| next()).collect()
}

fn random_floats(shape: &[usize], seed: u64) -> Value {
    let numbers = random(shape.iter().product(), 2001, seed);
    let elements: Vec<f32> = numbers.into_iter().map(|n| n as f32 / 1000.0 - 1.0).collect();
    floats(&elements, shape)
}

fn random_indices(shape: &[usize], end: usize, seed: u64) -> Value {
    let numbers = random(shape.iter().product(), end as u64, seed);
    let elements: Vec<i32> = numbers.into_iter().map(|n| n as i32).collect();
    integers(&elements, shape)
}

/// Quantised matrices and their settings.
struct Matrices {
    planes: Vec<Value>,
    group: i64,
    bits: i64,
    mode: &'static str,
}

impl Matrices {
    fn of(w: &Value, group: i64, bits: i64, mode: &'static str) -> Matrices {
        Matrices {
            planes: ops::quantize(w, Some(group), Some(bits), mode).expect("quantises"),
            group,
            bits,
            mode,
        }
    }

    fn gathered(&self, x: &Value, indices: [Option<&Value>; 2]) -> Value {
        let (w, scales, biases) = (&self.planes[0], &self.planes[1], self.planes.get(2));
        let (group, bits) = (Some(self.group), Some(self.bits));
        ops::gather_qmm(x, w, scales, biases, indices, true, group, bits, self.mode).expect("multiplies")
    }

    /// The matrices in the dtype of their scales.
    fn rounded(&self) -> Value {
        let (w, scales, biases) = (&self.planes[0], &self.planes[1], self.planes.get(2));
        let (group, bits) = (Some(self.group), Some(self.bits));
        ops::dequantize(w, scales, biases, group, bits, self.mode, None).expect("dequantises")
    }

    /// The matrices in f32, not rounded.
    fn dequantised(&self) -> Value {
        let wide = |plane: &Value| match plane.dtype().is_floating() {
            true => plane.cast(DType::F32).expect("casts"),
            false => plane.clone(),
        };
        let (w, scales, biases) = (&self.planes[0], wide(&self.planes[1]), self.planes.get(2).map(wide));
        let (group, bits) = (Some(self.group), Some(self.bits));
        ops::dequantize(w, &scales, biases.as_ref(), group, bits, self.mode, Some(DType::F32)).expect("dequantises")
    }
}

/// The products in f64, with the transposes of dense `w`.
fn expected(x: &Value, w: &Value, [lhs, rhs]: [Option<&Value>; 2]) -> Vec<f64> {
    let batch = |value: &Value, indices: Option<&Value>| match indices {
        Some(indices) => indices.clone(),
        None => common::counted(&value.shape()[..value.ndim() - 2]),
    };
    let pairs = ops::broadcast_arrays(&[batch(x, lhs), batch(w, rhs)]).expect("broadcasts");
    let [left, right] = [&pairs[0], &pairs[1]].map(read);
    let (rows, inner) = (x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]);
    let columns = w.shape()[w.ndim() - 2];
    let (x, w) = (read(x), read(w));
    let mut products = Vec::new();
    for (left, right) in left.into_iter().zip(right) {
        for row in 0..rows {
            let x = &x[(left as usize * rows + row) * inner..][..inner];
            for column in 0..columns {
                let w = &w[(right as usize * columns + column) * inner..][..inner];
                products.push(x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum());
            }
        }
    }
    products
}

fn near(found: &Value, expected: &[f64], bound: f64, what: &str) {
    let found = read(found);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(
            difference <= bound * (1.0 + expected.abs()),
            "{what}: {found} instead of {expected}"
        );
    }
}

#[test]
fn gathered_products_are_those_of_mlx() {
    let w = ramp(&[3, 2, 64], 37);
    let matrices = Matrices::of(&w, 32, 4, "affine");
    let indices = integers(&[2, 0, 1, 2], &[2, 2]);
    let check = |found: Value, shape: &[usize], expected: &[f64]| {
        assert_eq!(found.shape(), shape);
        near(&found, expected, 1e-5, "MLX");
    };
    // All experts of a token get the same vector.
    let shared = ramp(&[2, 1, 1, 64], 11);
    let found = matrices.gathered(&shared, [None, Some(&indices)]);
    let by_mlx = [
        5.4875, -2.304464, 4.467858, -4.778571, -3.499999, 3.4, 0.575892, 4.291072,
    ];
    check(found, &[2, 2, 1, 2], &by_mlx);
    let each = ramp(&[2, 2, 1, 64], 11);
    let found = matrices.gathered(&each, [None, Some(&indices)]);
    let by_mlx = [
        5.4875, -2.304464, 0.498214, 2.65, 3.5875, -4.664285, -4.561606, 3.608036,
    ];
    check(found, &[2, 2, 1, 2], &by_mlx);
    let sorted = ramp(&[3, 1, 64], 11);
    let found = matrices.gathered(&sorted, [None, Some(&integers(&[0, 1, 1], &[3]))]);
    let by_mlx = [4.467858, -4.778571, -3.499999, 3.4, 3.5875, -4.664285];
    check(found, &[3, 1, 2], &by_mlx);
    // Floats of MXFP4, and dense matrices.
    let mxfp4 = Matrices::of(&w, 32, 4, "mxfp4");
    let found = mxfp4.gathered(&shared, [None, Some(&indices)]);
    let by_mlx = [5.61875, -2.0, 4.6875, -4.80625, -3.175, 3.3125, 0.675, 4.49375];
    check(found, &[2, 2, 1, 2], &by_mlx);
    let transposed = ops::swapaxes(&w, -1, -2).expect("swaps");
    let found = ops::gather_mm(&shared, &transposed, None, Some(&indices)).expect("multiplies");
    let by_mlx = [5.275, -2.165, 4.5925, -5.0, -3.5075, 3.4775, 0.6225, 4.02];
    check(found, &[2, 2, 1, 2], &by_mlx);
}

#[test]
fn random_shapes_match_dequantised_matrices() {
    // The shapes of x, of its indices and of the matrices' indices.
    type Case = (&'static [usize], Option<&'static [usize]>, Option<&'static [usize]>);
    let cases: [Case; 13] = [
        (&[5, 1, 1, 64], None, Some(&[5, 3])),
        (&[5, 3, 1, 64], None, Some(&[5, 3])),
        (&[9, 1, 64], None, Some(&[9])),
        (&[2, 4, 1, 1, 64], None, Some(&[2, 4, 3])),
        (&[2, 4, 3, 1, 64], None, Some(&[2, 4, 3])),
        (&[1, 64], None, Some(&[])),
        (&[1, 64], None, Some(&[4])),
        (&[2, 7, 64], None, Some(&[2])),
        (&[1, 7, 64], None, Some(&[3])),
        (&[3, 1, 2, 64], None, Some(&[3, 4])),
        (&[4, 3, 64], Some(&[5]), Some(&[2, 5])),
        (&[6, 1, 64], None, None),
        (&[4, 1, 64], Some(&[6]), None),
    ];
    let (experts, rows) = (6, 10);
    let w = random_floats(&[experts, rows, 64], 1);
    let formats = [
        (64, 4, "affine"),
        (32, 8, "affine"),
        (32, 3, "affine"),
        (32, 4, "mxfp4"),
    ];
    for (number, (shape, lhs, rhs)) in cases.into_iter().enumerate() {
        let seed = 10 * number as u64;
        let outer: usize = shape[..shape.len() - 2].iter().product();
        let lhs = lhs.map(|lhs| random_indices(lhs, outer, seed + 2));
        let rhs = rhs.map(|rhs| random_indices(rhs, experts, seed + 3));
        let indices = [lhs.as_ref(), rhs.as_ref()];
        for (dtype, bound) in [(DType::F32, 1e-4), (DType::F16, 2e-3), (DType::BF16, 1e-2)] {
            let x = random_floats(shape, seed + 4).cast(dtype).expect("casts");
            let dense = w.cast(dtype).expect("casts");
            for (group, bits, mode) in formats {
                let matrices = Matrices::of(&dense, group, bits, mode);
                let found = matrices.gathered(&x, indices);
                let what = format!("{shape:?} {dtype} {} {}", matrices.mode, matrices.bits);
                assert_eq!(found.dtype(), dtype, "{what}");
                // Matrices that no index chooses from are dequantised in their own dtype.
                let exact = match indices {
                    [None, None] => matrices.rounded(),
                    _ => matrices.dequantised(),
                };
                near(&found, &expected(&x, &exact, indices), bound, &what);
            }
            // Dense matrices that are stored in either order.
            let swapped = ops::swapaxes(&dense, -1, -2).expect("swaps");
            let copy = ops::contiguous(&swapped).expect("copies");
            for b in [swapped, copy] {
                let found = ops::gather_mm(&x, &b, indices[0], indices[1]).expect("multiplies");
                let what = format!("{shape:?} {dtype} dense");
                near(&found, &expected(&x, &dense, indices), bound, &what);
            }
        }
    }
}

/// A mixture's feed-forward part as mlx-lm writes it: x `[B, L, K]` and indices `[B, L, k]` → `[B, L, k, K]`.
fn mixture(x: &Value, indices: &Value, [gate, up, down]: &[Matrices; 3]) -> Value {
    let x = ops::expand_dims(x, &[-2, -3]).expect("expands");
    let indices = [None, Some(indices)];
    let (up, gate) = (up.gathered(&x, indices), gate.gathered(&x, indices));
    let silu = ops::multiply(
        &(&gate).into(),
        &ops::sigmoid(&(&gate).into()).expect("computes").into(),
    );
    let inner = ops::multiply(&silu.expect("computes").into(), &up.into()).expect("computes");
    ops::squeeze(&down.gathered(&inner, indices), Some(&[-2])).expect("squeezes")
}

/// Matrices of `experts` experts with random words, which cost no time to quantise.
fn random_matrices(experts: usize, rows: usize, columns: usize, dtype: DType) -> Matrices {
    let words: Vec<u32> = random(experts * rows * columns / 8, 1 << 31, 7)
        .into_iter()
        .map(|word| word as u32)
        .collect();
    let plane = |seed| {
        let plane = random_floats(&[experts, rows, columns / 64], seed);
        let small = ops::multiply(&plane.into(), &Operand::from(0.01)).expect("multiplies");
        small.cast(dtype).expect("casts")
    };
    Matrices {
        planes: vec![
            Value::from_slice(&words, &[experts, rows, columns / 8]).expect("fits"),
            plane(8),
            plane(9),
        ],
        group: 64,
        bits: 4,
        mode: "affine",
    }
}

#[test]
fn no_matrix_is_copied() {
    const EXPERTS: usize = 64;
    let (columns, inner) = (128, 64);
    for (tokens, dtype) in [(1, DType::F32), (1, DType::BF16), (64, DType::BF16)] {
        let matrices = [
            random_matrices(EXPERTS, inner, columns, dtype),
            random_matrices(EXPERTS, inner, columns, dtype),
            random_matrices(EXPERTS, columns, inner, dtype),
        ];
        let x = random_floats(&[1, tokens, columns], 3).cast(dtype).expect("casts");
        let indices = random_indices(&[1, tokens, 8], EXPERTS, 4);
        let indices = indices.cast(DType::U32).expect("casts");
        let mut evaluated: Vec<Value> = matrices.iter().flat_map(|m| m.planes.clone()).collect();
        evaluated.extend([x.clone(), indices.clone()]);
        refrain_mlx::eval(&evaluated).expect("computes");
        let result = mixture(&x, &indices, &matrices);
        assert_eq!((result.shape(), result.dtype()), (&[1, tokens, 8, columns][..], dtype));
        let function = Function::trace(&[result.array()]).expect("lowers");
        let plan = function.plan();
        let steps: Vec<String> = plan.steps.iter().map(|step| step.primitive.to_string()).collect();
        // Activations only: the matrices of a token's experts alone have 8 · 3 · 64 · 128 values.
        let products = (tokens * 8 * (2 * inner + columns) * 4) as u64;
        let scratch = plan.scratch_bytes;
        assert!(scratch <= 2 * products + 4096, "{scratch} bytes: {steps:#?}");
        if dtype == DType::F32 {
            let [gate_up, down] = &steps[..] else {
                panic!("{steps:#?}");
            };
            assert!(gate_up.starts_with("expert_projection each"), "{gate_up}");
            assert!(down.starts_with("expert_matmul"), "{down}");
        }
    }
}

#[test]
fn indices_must_be_integers() {
    let w = Matrices::of(&random_floats(&[2, 4, 64], 1), 64, 4, "affine");
    let (scales, biases) = (&w.planes[1], w.planes.get(2));
    let x = random_floats(&[1, 64], 2);
    let indices = floats(&[1.0], &[1]);
    let found = ops::gather_qmm(
        &x,
        &w.planes[0],
        scales,
        biases,
        [None, Some(&indices)],
        true,
        Some(64),
        Some(4),
        "affine",
    );
    assert!(found.expect_err("they are floats").to_string().contains("integral"));
}
