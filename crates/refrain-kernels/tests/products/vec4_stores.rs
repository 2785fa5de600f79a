//! Results of many tokens that are stored as vec4.

use crate::projections::{Case, NORM, plain, with_epilogue};
use crate::support::{FLOATS, with_matrix_cores};
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::{DType, tuning};

#[test]
fn eight_bit_products_are_stored_as_vec4() {
    let eight = WeightStorage::Quantised(QuantFormat::Q8_0);
    for traits in with_matrix_cores() {
        for (i, sections) in [
            vec![with_epilogue(&[eight], 72)],
            vec![with_epilogue(&[eight; 2], 88)],
            vec![plain(eight, 52), plain(eight, 4), plain(eight, 16)],
        ]
        .into_iter()
        .enumerate()
        {
            for tokens in [19, 150] {
                Case {
                    tokens,
                    columns: 384,
                    x: FLOATS[i],
                    out: DType::F32,
                    norm: (i != 0).then_some(NORM),
                    sections: sections.clone(),
                    weights: DType::F16,
                }
                .check(tuning::choose(&traits), &traits);
            }
        }
    }
}
