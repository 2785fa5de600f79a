use refrain::{Array, DType, Device, concatenate, fast};

use crate::common::Random;

/// Outputs of a random program with shared results, views, products and a state that is read and written.
pub fn program(device: &Device, random: &mut Random) -> Vec<Array> {
    let mut state = Array::state(device, DType::F32, &[6, 4]).expect("a small state");
    let slots = Array::from_slice(device, &[0i32, 3, 5], &[3]);
    let mut arrays = vec![
        Array::input(device, "x", DType::F32, &[3, 4]),
        Array::ones(device, DType::F32, &[4, 4]).exp(),
    ];
    for _ in 0..5 + random.below(20) {
        let x = arrays[random.below(arrays.len())].clone();
        let y = arrays[arrays.len() - 1 - random.below(2)].clone();
        let square = |x: &Array| x.reshape(&[-1, 4]).take(&Array::arange(device, DType::I32, 4), 0);
        let made = match random.below(12) {
            0 => square(&x) + square(&y),
            1 => square(&x).matmul(&square(&y)),
            2 => square(&x)
                .matmul(&square(&y).transpose())
                .reshape(&[4, 2, 2])
                .permute(&[1, 0, 2])
                .contiguous(),
            3 => x.softmax(),
            4 => fast::rms_norm(&square(&x).transpose(), None, 1e-6),
            5 => concatenate(&[&square(&x), &square(&y)], 0),
            6 => square(&x).sum(&[0]).broadcast_to(&[4, 4]).contiguous(),
            7 => (&x * 2.0).astype(DType::F16).astype(DType::F32),
            8 | 9 => {
                state = state.write_rows(&square(&x).slice(0, 0, 3), &slots);
                continue;
            }
            10 => state.transpose().sum(&[1]) * 0.5,
            _ => state.slice(0, 2, 6).matmul(&square(&x)),
        };
        arrays.push(made);
    }
    let kept = 1 + random.below(3);
    let mut outputs: Vec<Array> = arrays.split_off(arrays.len().saturating_sub(kept));
    outputs.push(state);
    outputs
}
