use refrain::{Array, DType, Device, concatenate};
use refrain_testing::sample;

use crate::check;
use crate::common::Random;

/// Dtypes of every size and kind.
const SOME: [DType; 4] = [DType::F32, DType::BF16, DType::I32, DType::Bool];

#[test]
fn views_of_views_agree() {
    for seed in sample(400..430, 8) {
        check(seed, |device, random| {
            let rank = 1 + random.below(4);
            let (dtype, shape) = (random.pick(&SOME), random.shape(rank, 500));
            let mut x = random.viewed(device, dtype, &shape);
            let mut seen = vec![];
            for _ in 0..4 {
                x = random_view(random, &x);
                seen.push(x.clone());
            }
            // A view that is read directly, and an array computed from a view.
            seen.push(x.reshape(&[-1]).astype(DType::F32) + 1.0);
            seen
        });
    }
}

fn random_view(random: &mut Random, x: &Array) -> Array {
    let rank = x.rank();
    let axis = random.below(rank);
    let n = x.shape()[axis];
    match random.below(6) {
        0 => x.permute(&random.axes(rank)),
        1 => {
            let start = random.below(n + 1);
            x.slice_by(
                axis as isize,
                start,
                start + random.below(n - start + 1),
                1 + random.below(3),
            )
        }
        2 => x
            .expand_dims(axis as isize)
            .broadcast_to(&[&x.shape()[..axis], &[2], &x.shape()[axis..]].concat()),
        3 => x.reshape(&[-1, 1]).swap_axes(0, -1),
        4 => x
            .transpose()
            .reshape(&x.shape().iter().map(|&n| n as isize).collect::<Vec<_>>()),
        _ => x.reshape(&[-1]),
    }
}

#[test]
fn joins_and_splits_agree() {
    for seed in sample(430..445, 6) {
        check(seed, |device, random| {
            let rank = 1 + random.below(3);
            let axis = random.below(rank);
            let mut shape = random.shape(rank, 200);
            let dtypes = [random.pick(&DType::ALL), random.pick(&DType::ALL)];
            let parts: Vec<Array> = (0..1 + random.below(5))
                .map(|_| {
                    shape[axis] = random.below(6);
                    let dtype = random.pick(&dtypes);
                    random.viewed(device, dtype, &shape)
                })
                .collect();
            let joined = concatenate(&parts.iter().collect::<Vec<_>>(), axis as isize - rank as isize);
            let doubled = concatenate(&[&joined, &joined], axis as isize);
            let [first, second] = doubled.split(axis as isize);
            vec![first.eq(&joined).all(&[]), second, joined]
        });
    }
}

#[test]
fn indexing_along_axes_agrees() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in sample(450..468, 6) {
        check(seed, |device, random| {
            let rank = 1 + random.below(3);
            let (dtype, shape) = (random.pick(&SOME), random.shape(rank, 300));
            let x = random.viewed(device, dtype, &shape);
            let axis = random.below(rank);
            let picked = random.shape(random.clone().below(3), 20);
            // Some indices are out of range.
            let index = indices(random, device, &picked);
            let (last, leading) = (shape[rank - 1], &shape[..rank - 1]);
            let wanted = [leading, &[1 + random.below(4)]].concat();
            let along = indices(random, device, &wanted);
            let k = random.below(last.min(9) + 1);
            let top = x.top_k(k);
            let chosen = x.take_along(&top);
            vec![x.take(&index, axis as isize), x.take_along(&along), top, chosen]
        });
    }
}

fn indices(random: &mut Random, device: &Device, shape: &[usize]) -> Array {
    let dtype = random.pick(&[DType::I32, DType::U32]);
    random.viewed(device, DType::I32, shape).astype(dtype)
}
