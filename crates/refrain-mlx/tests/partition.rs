//! Partitions: the element at `kth` is where sorting puts it, and where a program can't tell, only the largest or the
//! smallest elements are found.

mod common;

use common::{counted, floats, integers, read};
use refrain::Function;
use refrain_mlx::index::{self, Index};
use refrain_mlx::{DType, Value, ops};

const EXPERTS: usize = 40;

/// Different numbers in no order.
fn scores(shape: &[usize]) -> Value {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> = (0..count)
        .map(|n| ((n * 7 + 3) % 41) as f32 + n as f32 / 1000.0)
        .collect();
    floats(&elements, shape)
}

/// The columns from `start` on.
fn from(x: &Value, start: i64) -> Value {
    let columns = Index::Slice {
        start: Some(start),
        stop: None,
        step: None,
    };
    index::get(x, &[Index::Ellipsis, columns]).expect("slices")
}

fn taken(x: &Value, positions: &Value) -> Value {
    ops::take_along_axis(x, positions, Some(-1)).expect("takes")
}

fn times(a: &Value, b: &Value) -> Value {
    ops::multiply(&a.into(), &b.into()).expect("multiplies")
}

fn sum(x: &Value) -> Value {
    ops::sum(x, Some(&[-1]), true).expect("sums")
}

/// The steps that compute a value.
fn steps(value: &Value) -> Vec<String> {
    let function = Function::trace(&[value.array()]).expect("lowers");
    function
        .plan()
        .steps
        .iter()
        .map(|step| step.primitive.to_string())
        .collect()
}

#[test]
fn the_element_at_kth_is_where_sorting_puts_it() {
    let x = scores(&[3, 5]);
    let sorted = read(&ops::sort(&x, Some(-1)).expect("sorts"));
    for kth in -5..5i64 {
        let place = kth.rem_euclid(5) as usize;
        let expected: Vec<f32> = sorted.chunks(5).map(|row| row[place]).collect();
        let order = ops::argpartition(&x, kth, Some(-1)).expect("partitions");
        let whole = taken(&x, &order);
        let at_kth = ops::take(&whole, &integers(&[place as i32], &[1]), Some(-1)).expect("takes");
        assert_eq!(read(&at_kth), expected, "{kth}, of all");
        // It is the first of one side, and the last of the other.
        let side = taken(&x, &from(&order, kth));
        let first = ops::take(&side, &counted(&[1]), Some(-1)).expect("takes");
        assert_eq!(read(&first), expected, "{kth}, of one side");
        assert_eq!(
            read(&side).iter().copied().fold(f32::MAX, f32::min),
            expected.iter().copied().fold(f32::MAX, f32::min)
        );
    }
}

#[test]
fn nan_comes_after_infinity() {
    let x = floats(&[f32::NAN, f32::INFINITY, f32::NAN, 1.0, f32::INFINITY], &[5]);
    for kth in 0..5i64 {
        let order = ops::argpartition(&x, kth, Some(0)).expect("partitions");
        let first = Index::Slice {
            start: None,
            stop: Some(kth + 1),
            step: None,
        };
        let smallest = index::get(&order, &[first]).expect("slices");
        for (side, numbers) in [(&order, 3), (&smallest, 3.min(kth as usize + 1))] {
            let elements = read(&taken(&x, side));
            assert_eq!(elements.iter().filter(|x| !x.is_nan()).count(), numbers, "{kth}");
            assert!(elements[..numbers].iter().all(|x| !x.is_nan()), "{kth}: {elements:?}");
        }
    }
}

#[test]
fn sides_whose_order_makes_no_difference_are_not_sorted() {
    let x = scores(&[2, EXPERTS]);
    let weights = scores(&[8]);
    let chosen = || from(&ops::argpartition(&x, -8, Some(-1)).expect("partitions"), -8);
    let gates = |order: &Value| taken(&x, order);
    let normalised = |gates: &Value| ops::divide(&gates.into(), &sum(gates).into()).expect("divides");
    let squares = |order: &Value| sum(&times(&normalised(&gates(order)), &gates(order)));
    let sorts = |value: &Value| {
        let steps = steps(value);
        let top_k = steps.iter().find(|step| step.contains("top_k")).expect("one");
        top_k.contains(&format!("top_k {EXPERTS}"))
    };
    assert!(!sorts(&squares(&chosen())));
    // The order is a result, or each position has a weight of its own, or one position is read.
    assert!(sorts(&gates(&chosen())));
    assert!(sorts(&sum(&times(&gates(&chosen()), &weights))));
    let first = ops::take(&gates(&chosen()), &counted(&[1]), Some(-1)).expect("takes");
    assert!(sorts(&first));

    let mut rows: Vec<Vec<f32>> = read(&x).chunks(EXPERTS).map(<[f32]>::to_vec).collect();
    let expected: Vec<f32> = rows
        .iter_mut()
        .map(|row| {
            row.sort_by(f32::total_cmp);
            let largest = &row[EXPERTS - 8..];
            largest.iter().map(|x| x * x).sum::<f32>() / largest.iter().sum::<f32>()
        })
        .collect();
    let found = read(&squares(&chosen()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-3, "{found} instead of {expected}");
    }
    assert_eq!(chosen().dtype(), DType::U32);
}
