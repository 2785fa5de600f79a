use refrain_kernels::expert_matmul::{self, Matrices};
use refrain_kernels::matmul::{Rows, SliceRows};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::{DType, Layout, Operand, Traits, Unsupported, Values};

use crate::common::Random;
use crate::quantised::Weights;
use crate::support::{FLOATS, all_traits, assert_close, device_traits, floats, outcome, stored};

/// Experts, rows of each, tokens, experts of each token.
type Sizes = [usize; 4];

/// Random choices; one of an expert that there is not.
fn chosen([experts, _, tokens, used]: Sizes) -> Vec<u32> {
    let mut random = Random::new(tokens as u64);
    let mut chosen: Vec<u32> = (0..tokens * used).map(|_| random.below(experts) as u32).collect();
    if chosen.len() > 2 {
        chosen[1] = experts as u32;
    }
    chosen
}

fn check(
    traits: &Traits,
    sizes: Sizes,
    x: &Operand,
    matrices: Matrices<'_>,
    planes: &[(&Operand, Values)],
    rows: &dyn Rows,
    out: DType,
) {
    let [_, n, tokens, used] = sizes;
    let what = format!("{sizes:?}, x {} {}, columns {}", x.dtype, x.layout, rows.columns());
    let (ids, out) = (
        Operand::contiguous(DType::U32, &[tokens, used]),
        Operand::contiguous(out, &[tokens, used, n]),
    );
    let values = stored(x, &floats(&mut Random::new(5), x.layout.count()));
    let calls = expert_matmul::call(traits, x, &ids, matrices, &out).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = expert_matmul::reference(&values, &chosen(sizes), rows, n);
    let mut inputs = vec![(x, Values::F32(values)), (&ids, Values::U32(chosen(sizes)))];
    inputs.extend(planes.iter().cloned());
    assert_close(&outcome(&calls, &inputs, &out), expected, out.dtype, &what);
}

/// What all of a token's experts are given alike.
fn shared(dtype: DType, [_, _, tokens, used]: Sizes, k: usize) -> Operand {
    let layout = Layout {
        shape: vec![tokens, used, k],
        strides: vec![k, 0, 1],
        offset: 0,
    };
    Operand { dtype, layout }
}

#[test]
fn products_with_the_matrices_of_chosen_experts() {
    for traits in all_traits() {
        for (i, (sizes, k)) in [
            ([4, 5, 1, 2], 64),
            ([3, 33, 7, 3], 40),
            ([1, 1, 2, 1], 7),
            ([6, 10, 3, 6], 129),
        ]
        .into_iter()
        .enumerate()
        {
            for j in 0..3 {
                let dtype = |n: usize| FLOATS[(i + j + n) % 3];
                let rows = sizes[0] * sizes[1];
                let w = Operand::contiguous(dtype(0), &[rows, k]);
                let values = stored(&w, &floats(&mut Random::new(9), rows * k));
                let x = match j {
                    0 => shared(dtype(1), sizes, k),
                    _ => Operand::contiguous(dtype(1), &[sizes[2], sizes[3], k]),
                };
                let planes = [(&w, Values::F32(values.clone()))];
                let rows = SliceRows::new(&values, k);
                check(&traits, sizes, &x, Matrices::Dense(&w), &planes, &rows, dtype(2));
            }
        }
    }
}

#[test]
fn products_with_quantised_experts() {
    for traits in all_traits() {
        let step = if traits == device_traits() { 1 } else { 3 };
        for (i, format) in QuantFormat::ALL.into_iter().enumerate().step_by(step) {
            let (sizes, k) = ([3, 13, 2 + i % 3, 2], if format.nested { 768 } else { 384 });
            let weights = Weights::random(format, [sizes[0] * sizes[1], k], FLOATS[i % 3]);
            let (quants, parameters) = weights.operands();
            let biases = format.has_biases().then_some(&parameters);
            let planes = weights.inputs(&quants, &parameters);
            let values: Vec<f32> = (0..sizes[0] * sizes[1]).flat_map(|row| weights.expand(row)).collect();
            let matrices = Matrices::Quantised(format, [&quants, &parameters], biases);
            let rows = SliceRows::new(&values, k);
            for x in [
                shared(FLOATS[i % 3], sizes, k),
                Operand::contiguous(FLOATS[(i + 1) % 3], &[sizes[2], sizes[3], k]),
            ] {
                check(&traits, sizes, &x, matrices, &planes, &rows, FLOATS[(i + 2) % 3]);
            }
        }
    }
}

#[test]
fn experts_that_do_not_fit_are_refused() {
    let operand = |dtype, shape: &[usize]| Operand::contiguous(dtype, shape);
    let (x, ids, out) = (
        operand(DType::F32, &[2, 3, 8]),
        operand(DType::U32, &[2, 3]),
        operand(DType::F32, &[2, 3, 5]),
    );
    let call = |w: &Operand| expert_matmul::call(&Traits::minimal(), &x, &ids, Matrices::Dense(w), &out).err();
    assert_eq!(call(&operand(DType::F16, &[20, 8])), None);
    for shape in [&[20, 9][..], &[21, 8], &[4, 5, 8]] {
        let error = call(&operand(DType::F16, shape));
        assert!(matches!(error, Some(Unsupported::Size { .. })), "{shape:?}: {error:?}");
    }
}
