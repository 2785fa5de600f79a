use refrain::{Array, DType, fast};

use crate::check;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn reductions_over_any_axes_agree() {
    type Reduction = fn(&Array, &[isize]) -> Array;
    let reductions: [(Reduction, &[DType]); 7] = [
        (Array::sum, &DType::ALL),
        (Array::mean, &DType::ALL),
        (|x, axes| (x * 0.5).prod(axes), &FLOATS),
        (Array::max, &DType::ALL),
        (Array::min, &DType::ALL),
        (Array::any, &DType::ALL),
        (Array::all, &DType::ALL),
    ];
    for (seed, (reduction, dtypes)) in (500..).zip(reductions.iter().cycle()).take(28) {
        check(seed, |device, random| {
            let rank = 1 + random.below(4);
            let mut shape = random.shape(rank, 700);
            shape.iter_mut().for_each(|n| *n = (*n).max(1));
            let dtype = random.pick(dtypes);
            let x = random.viewed(device, dtype, &shape);
            let axes: Vec<isize> = (0..rank)
                .filter(|_| random.one_in(2))
                .map(|a| a as isize - rank as isize)
                .collect();
            vec![reduction(&x, &axes), reduction(&x.transpose(), &[0])]
        });
    }
}

#[test]
fn reductions_of_nothing_agree() {
    check(540, |device, random| {
        let x = random.viewed(device, DType::F32, &[3, 0, 2]);
        vec![
            x.sum(&[1]),
            x.prod(&[1]),
            x.mean(&[1]),
            x.any(&[1]),
            x.all(&[1]),
            x.sum(&[0, 1, 2]),
            x.max(&[0]),
        ]
    });
}

#[test]
fn rows_agree_in_softmax_norms_and_argmax() {
    for seed in 550..570 {
        check(seed, |device, random| {
            let rank = 1 + random.below(3);
            let mut shape = random.shape(rank, 600);
            shape[rank - 1] = random.pick(&[1, 2, 5, 33, 64, 130]);
            let dtype = random.pick(&FLOATS);
            let x = random.viewed(device, dtype, &shape);
            let dtype = random.pick(&FLOATS);
            let weight = random.viewed(device, dtype, &shape[rank - 1..]);
            let weight = if random.one_in(2) { Some(&weight) } else { None };
            vec![
                x.softmax(),
                x.argmax(),
                fast::rms_norm(&x, weight, 1e-5),
                fast::rms_norm(&(&x * 2.0), weight, 1e-5),
            ]
        });
    }
}

#[test]
fn long_rows_agree() {
    check(580, |device, _| {
        let x = (Array::arange(device, DType::F32, 40_000).reshape(&[2, -1]) * 0.37).sin();
        vec![
            x.sum(&[1]),
            x.max(&[1]),
            x.softmax().max(&[-1]),
            x.argmax(),
            x.top_k(5),
            fast::rms_norm(&x, None, 0.0),
        ]
    });
}
