//! Small random programs, at least one for each kernel family.

use super::FamilyTest;
use super::random::{RandomArrays, quantised};
use crate::{Array, Combine, DType, Device, QuantFormat, concatenate, fast};

/// The families of this crate's operations.
pub const FAMILIES: &[FamilyTest] = &[
    ("elementwise", elementwise),
    ("reduce", reduce),
    ("softmax", softmax),
    ("argmax", argmax),
    ("top-k", top_k),
    ("sort", sort),
    ("gather", gather),
    ("write rows", write_rows),
    ("combine rows", combine_rows),
    ("matrix product", products),
    ("quantised product", quantised_products),
    ("RMS norm", rms_norm),
];

/// The float dtypes that kernels store.
pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// A named result.
pub fn named(name: impl ToString, array: Array) -> (String, Array) {
    (name.to_string(), array)
}

fn elementwise(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let program = |dtype| {
        let (x, y) = (source.floats(dtype, &[7, 33]), source.floats(dtype, &[33]));
        let chain = (&x * &y + 0.5).silu().maximum(x.sin() * y.exp());
        named(dtype, x.gt(&y).select(&chain, x.abs().sqrt()))
    };
    let mut results: Vec<_> = FLOATS.into_iter().map(program).collect();
    let words = source.words(&[65]);
    let low = words.bit_and(255);
    results.push(named("u32", low.clone()));
    results.push(named("u8 from u32", low.astype(DType::U8)));
    results.push(named("joined", concatenate(&[&low, &low], 0)));
    results
}

fn reduce(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let x = source.floats(dtype, &[5, 300]);
        results.push(named(format!("sum of {dtype}"), x.sum(&[-1])));
        results.push(named(format!("mean of {dtype}"), x.mean(&[0, 1])));
        results.push(named(format!("max of {dtype}"), x.max(&[0])));
        results.push(named(format!("min of {dtype}"), x.min(&[1])));
    }
    let x = source.floats(DType::F32, &[5, 30]);
    results.push(named("product", (&x + 2.0).prod(&[1])));
    let positive = x.gt(-0.9);
    results.push(named("all", positive.all(&[1])));
    results.push(named("any", positive.any(&[1])));
    results
}

fn softmax(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let program = |dtype| named(dtype, (source.floats(dtype, &[3, 777]) * 8.0).softmax());
    FLOATS.into_iter().map(program).collect()
}

fn argmax(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let few = source.shuffled(&[6, 50]).argmax();
    vec![
        named("rows of 50", few),
        named("a row of 5000", source.shuffled(&[1, 5000]).argmax()),
    ]
}

fn top_k(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let few = source.shuffled(&[4, 64]).top_k(8);
    vec![
        named("8 of 64", few),
        named("40 of 3000", source.shuffled(&[1, 3000]).top_k(40)),
    ]
}

fn sort(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let few = source.shuffled(&[4, 64]).sort(-1);
    vec![
        named("rows of 64", few),
        named("a row of 3000", source.shuffled(&[1, 3000]).sort(-1)),
    ]
}

fn gather(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let (table, rows) = (source.floats(dtype, &[20, 48]), source.indices(&[9], 20));
        results.push(named(format!("rows of {dtype}"), table.take(&rows, 0)));
        let indices = source.indices(&[20, 5], 48);
        results.push(named(format!("elements of {dtype}"), table.take_along(&indices)));
    }
    results
}

fn write_rows(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let slots: Vec<i32> = vec![3, 0, -1, 2, 1];
        let slots = Array::from_slice(device, &slots, &[5]);
        // If a state cannot be allocated, the other results still fail with the error.
        if let Ok(state) = Array::state(device, dtype, &[4, 3, 16]) {
            let rows = source.floats(DType::F32, &[5, 3, 16]);
            results.push(named(dtype, state.write_rows(&rows.astype(dtype), &slots)));
        }
    }
    results
}

fn combine_rows(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let slots = Array::from_slice(device, &[3i32, 0, -1, 3, 1], &[5]);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let (base, rows) = (source.floats(dtype, &[4, 3, 16]), source.floats(dtype, &[5, 3, 16]));
        results.push(named(dtype, base.combine_rows(&rows, &slots, Combine::Add)));
    }
    results
}

fn products(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let weight = source.floats(dtype, &[72, 256]);
        for tokens in [1, 5, 70] {
            let x = source.floats(DType::F32, &[tokens, 256]);
            let name = format!("{tokens} rows of f32 times {dtype}");
            results.push(named(name, x.matmul(&weight.transpose())));
        }
        let square = source.floats(dtype, &[1, 256]).matmul(&weight.transpose());
        results.push(named(format!("{dtype} times {dtype}"), square));
    }
    results
}

fn quantised_products(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let mut results = Vec::new();
    // Group sizes are kernel arguments, so that testing one size suffices.
    let formats = QuantFormat::ALL.into_iter().filter(|format| format.group != 128);
    for format in formats {
        let weight = quantised(&mut source, format, 24, 256);
        for tokens in [1, 40] {
            let x = source.floats(DType::F32, &[tokens, 256]);
            results.push(named(format!("{tokens} rows times {format}"), weight.matmul(&x)));
        }
        let rows = source.indices(&[3], 24);
        results.push(named(format!("rows of {format}"), weight.take(&rows)));
    }
    results
}

fn rms_norm(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let program = |dtype| {
        let (x, weight) = (source.floats(dtype, &[4, 200]), source.floats(dtype, &[200]));
        named(dtype, fast::rms_norm(&x, Some(&weight), 1e-6))
    };
    FLOATS.into_iter().map(program).collect()
}
