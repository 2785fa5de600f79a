//! A format outside the table: products and row lookup on the device and on the CPU.

#[path = "../../../refrain-quant/tests/dummy_format/record.rs"]
mod record;

use crate::common::Random;
use crate::quantised::RandomWeights;
use crate::support::all_traits;
use record::RECORD;
use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::WeightRows;
use refrain_kernels::quantised::QuantRows;
use refrain_kernels::{DType, OperandSpec, tuning};
use refrain_testing::sample;

#[test]
fn a_custom_format_works_on_the_device() {
    if !refrain_testing::drawn(12) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for fixed_point in [false, true] {
            let row = tuning::Tuning {
                fixed_point,
                ..*tuning::choose(&traits)
            };
            let weights = RandomWeights::random(RECORD.format, [21, 192], DType::F16);
            for tokens in [1, 3, 40] {
                let x = OperandSpec::contiguous(DType::F32, &[tokens, 192]);
                let out = OperandSpec::contiguous(DType::F32, &[tokens, 21]);
                weights.check_product(&row, &traits, &x, &out);
            }
        }
    }
}

#[test]
fn a_custom_format_works_on_the_cpu() {
    let format = RECORD.block.expect("the format has blocks");
    let mut random = Random::new(9);
    let (mut quants, mut scales, mut values) = (vec![0; 32 * 6], vec![0; 2 * 6], vec![0.0; 64 * 6]);
    for b in 0..6 {
        let wanted: Vec<f32> = (0..64).map(|_| random.unit()).collect();
        let mut block = [0; 34];
        (format.encode.expect("the format has an encoder"))(&wanted, &mut block).expect("small numbers");
        (format.repack)(&block, &mut quants[32 * b..][..32]);
        (format.scale)(&block, &mut scales[2 * b..][..2]);
        RECORD.dequantise_block(&block, &mut values[64 * b..][..64]);
    }
    let rows = QuantRows::new(RECORD.format, [2, 192], &quants, DType::F16, &scales, None).expect("planes");
    let x: Vec<f32> = (0..192).map(|_| random.unit()).collect();
    let mut products = [0.0; 2];
    FastRows::Quantised(rows).multiply(&x, 0..2, &mut products);
    for (row, product) in values.chunks(192).zip(products) {
        let expected: f32 = row.iter().zip(&x).map(|(w, x)| w * x).sum();
        assert!((product - expected).abs() < 1e-4, "got {product}, expected {expected}");
    }
}
