use refrain::{Array, Axes, DType, fast};
use refrain_testing::sample;

use crate::check;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn reductions_over_any_axes_agree() {
    type Reduction = fn(&Array, &[isize]) -> Array;
    let reductions: [(Reduction, &[DType]); 7] = [
        (|x, axes| x.sum(axes), &DType::ALL),
        (|x, axes| x.mean(axes), &DType::ALL),
        (|x, axes| (x * 0.5).prod(axes), &FLOATS),
        (|x, axes| x.max(axes), &DType::ALL),
        (|x, axes| x.min(axes), &DType::ALL),
        (|x, axes| x.any(axes), &DType::ALL),
        (|x, axes| x.all(axes), &DType::ALL),
    ];
    for (seed, (reduction, dtypes)) in sample((500..).zip(reductions.iter().cycle()).take(28), 6) {
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
fn reductions_of_empty_arrays_agree() {
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
fn softmax_norms_and_argmax_of_rows_agree() {
    for seed in sample(550..570, 8) {
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

#[test]
fn keepdims_keeps_reduced_dimensions_with_extent_one() {
    check(560, |device, random| {
        let x = random.viewed(device, DType::F32, &[3, 4, 5]);
        let kept = [
            (x.sum(Axes::keepdims(&[-2])), x.sum(&[1]).expand_dims(1), [3, 1, 5]),
            (
                x.max(Axes::keepdims(&[2, 0])),
                x.max(&[0, 2]).reshape(&[1, 4, 1]),
                [1, 4, 1],
            ),
            (x.mean(Axes::keepdims(&[])), x.clone(), [3, 4, 5]),
        ];
        let mut results = vec![];
        for (kept, expected, shape) in kept {
            assert_eq!(kept.shape(), shape);
            results.push(kept.eq(&expected).all(&[]));
            results.push(kept);
        }
        assert!(x.sum(Axes::keepdims(&[3])).error().is_some());
        results
    });
}
