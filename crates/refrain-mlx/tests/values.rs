//! Values: dtypes, promotion, indexing, evaluation and errors.

mod common;

use common::{counted, floats, integers, read};
use refrain_mlx::index::{self, Index, Update};
use refrain_mlx::{DType, ErrorKind, Number, Operand, Value, eval, ops};

fn slice(start: impl Into<Option<i64>>, stop: impl Into<Option<i64>>, step: impl Into<Option<i64>>) -> Index {
    Index::Slice {
        start: start.into(),
        stop: stop.into(),
        step: step.into(),
    }
}

#[test]
fn numbers_are_weak() {
    let half = ops::zeros(&[2], DType::F16).expect("zeros");
    let sum = ops::add(&(&half).into(), &Operand::from(1.5)).expect("adds");
    assert_eq!(sum.dtype(), DType::F16);
    let bytes = ops::zeros(&[2], DType::U8).expect("zeros");
    let wrapped = ops::subtract(&bytes.into(), &Operand::from(1i64)).expect("subtracts");
    assert_eq!((wrapped.dtype(), read(&wrapped)), (DType::U8, vec![255.0; 2]));
    let truth = Value::scalar(Number::Bool(true), None).expect("a bool");
    let counted = ops::add(&truth.into(), &Operand::from(1i64)).expect("adds");
    assert_eq!((counted.dtype(), read(&counted)), (DType::I32, vec![2.0]));
}

#[test]
fn unsupported_dtypes_are_named() {
    let error = counted(&[2]).cast(DType::F64).expect_err("float64 is missing");
    assert_eq!(error.kind, ErrorKind::NotImplemented);
    assert!(error.message.starts_with("float64 arrays are not supported"), "{error}");
}

#[test]
fn narrow_integers_wrap() {
    let bytes = Value::from_bytes(&[127, 0x80, 0xff], DType::I8, &[3]).expect("fits");
    assert_eq!(read(&bytes), [127.0, -128.0, -1.0]);
    let more = ops::add(&(&bytes).into(), &Operand::from(1i64)).expect("adds");
    assert_eq!((more.dtype(), read(&more)), (DType::I8, vec![-128.0, -127.0, 0.0]));
    assert_eq!(more.to_bytes().expect("reads"), [0x80, 0x81, 0]);
    let wide = ops::add(&bytes.into(), &counted(&[3]).cast(DType::U8).expect("converts").into()).expect("adds");
    assert_eq!(wide.dtype(), DType::I16);
    assert_eq!(wide.to_bytes().expect("reads"), [127, 0, 0x81, 0xff, 1, 0]);
    let total = ops::sum(&wide, None, false).expect("sums");
    assert_eq!((total.dtype(), read(&total)), (DType::I32, vec![1.0]));
}

#[test]
fn wide_integers_are_checked_where_they_enter() {
    let bytes: Vec<u8> = [-5i64, 7].into_iter().flat_map(i64::to_le_bytes).collect();
    let wide = Value::from_bytes(&bytes, DType::I64, &[2]).expect("fits");
    let first = index::get(&wide, &[Index::Int(0)]).expect("in range");
    assert_eq!(
        (first.dtype(), first.item().expect("one")),
        (DType::I64, Number::Int(-5))
    );
    assert_eq!(wide.to_bytes().expect("reads"), bytes);
    let mixed = ops::add(&counted(&[2]).into(), &wide.into()).expect("adds");
    assert_eq!((mixed.dtype(), read(&mixed)), (DType::I64, vec![-5.0, 8.0]));
    let error = Value::from_bytes(&(1i64 << 40).to_le_bytes(), DType::I64, &[]).expect_err("it is too large");
    assert_eq!(error.kind, ErrorKind::NotImplemented);
    let u = counted(&[2]).cast(DType::U32).expect("converts");
    let promoted = ops::add(&u.into(), &counted(&[2]).into()).expect("adds");
    assert_eq!((promoted.dtype(), read(&promoted)), (DType::I64, vec![0.0, 2.0]));
}

#[test]
fn unsigned_and_signed_compare_exactly() {
    let a = Value::from_slice(&[0u32, 3, u32::MAX], &[3]).expect("fits");
    let b = integers(&[-1, 3, -1], &[3]);
    let (a, b) = (Operand::from(a), Operand::from(b));
    assert_eq!(read(&ops::equal(&a, &b).expect("compares")), [0.0, 1.0, 0.0]);
    assert_eq!(read(&ops::less(&a, &b).expect("compares")), [0.0, 0.0, 0.0]);
    assert_eq!(read(&ops::less(&b, &a).expect("compares")), [1.0, 0.0, 1.0]);
    assert_eq!(read(&ops::greater_equal(&a, &b).expect("compares")), [1.0; 3]);
}

#[test]
fn evaluation_keeps_what_is_referenced() {
    let a = floats(&[1.0, 2.0], &[2]);
    let kept = ops::square(&a.into()).expect("squares");
    let total = ops::sum(&kept, None, false).expect("sums");
    eval(&[total]).expect("computes");
    assert!(kept.is_evaluated());
}

#[test]
fn slices_follow_python() {
    let a = counted(&[3, 4]);
    let got = |items: &[Index]| {
        let value = index::get(&a, items).expect("in range");
        (value.shape().to_vec(), read(&value))
    };
    assert_eq!(got(&[Index::Int(-1)]), (vec![4], vec![8.0, 9.0, 10.0, 11.0]));
    assert_eq!(got(&[Index::Ellipsis, Index::Int(1)]), (vec![3], vec![1.0, 5.0, 9.0]));
    assert_eq!(
        got(&[slice(None, None, -1), Index::Int(0)]),
        (vec![3], vec![8.0, 4.0, 0.0])
    );
    assert_eq!(got(&[Index::Int(0), slice(-1, 0, -2)]), (vec![2], vec![3.0, 1.0]));
    assert_eq!(got(&[slice(5, None, None)]), (vec![0, 4], vec![]));
    assert_eq!(
        got(&[Index::Int(0), Index::NewAxis, slice(1, 3, None)]),
        (vec![1, 2], vec![1.0, 2.0])
    );
    let error = index::get(&a, &[Index::Int(3)]).expect_err("it is out of range");
    assert_eq!(error.kind, ErrorKind::Index);
    assert!(index::get(&a, &[Index::Int(0), Index::Int(0), Index::Int(0)]).is_err());
}

#[test]
fn arrays_of_indices_follow_numpy() {
    let a = counted(&[2, 3, 4]);
    let many = |elements: &[i32]| Index::Array(integers(elements, &[elements.len()]));
    let got = |items: &[Index]| {
        let value = index::get(&a, items).expect("in range");
        (value.shape().to_vec(), read(&value))
    };
    assert_eq!(
        got(&[many(&[-1, 0]), many(&[2, 1]), Index::Int(1)]),
        (vec![2], vec![21.0, 5.0])
    );
    // Adjacent indices stay in their place, others come first.
    assert_eq!(got(&[Index::ALL, many(&[2, 0]), many(&[3, 1])]).0, [2, 2]);
    assert_eq!(
        got(&[many(&[0, 1]), Index::ALL, many(&[3, 1])]),
        (vec![2, 3], vec![3.0, 7.0, 11.0, 13.0, 17.0, 21.0])
    );
    assert_eq!(got(&[Index::ALL, Index::ALL, many(&[3, 3, 0])]).0, [2, 3, 3]);
}

#[test]
fn setting_leaves_the_old_value() {
    let a = ops::zeros(&[3, 4], DType::I32).expect("zeros");
    let b = index::set(
        &a,
        &[slice(None, None, 2), slice(None, None, -3)],
        &integers(&[1, 2], &[2]).into(),
    )
    .expect("sets");
    assert_eq!(read(&a), [0.0; 12]);
    assert_eq!(read(&b), [2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0]);
    let rows = Index::Array(integers(&[-1, 0], &[2]));
    let c = index::set(&b, std::slice::from_ref(&rows), &Operand::from(7i64)).expect("sets");
    assert_eq!(read(&c)[..4], [7.0; 4]);
    assert_eq!(read(&c)[4..8], [0.0; 4]);
    assert_eq!(read(&c)[8..], [7.0; 4]);
    let columns = Index::Array(integers(&[1, 3], &[2]));
    let d = index::set(
        &a,
        &[Index::ALL, columns],
        &integers(&[1, 2, 3, 4, 5, 6], &[3, 2]).into(),
    )
    .expect("sets");
    assert_eq!(read(&d), [0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 5.0, 0.0, 6.0]);
    assert!(index::set(&a, &[Index::Int(0)], &integers(&[1, 2], &[2]).into()).is_err());
}

#[test]
fn nothing_is_set_in_arrays_without_elements() {
    let a = floats(&[], &[3, 0]);
    for items in [vec![Index::Ellipsis, Index::Int(0)], vec![Index::Int(7)]] {
        let set = index::set(&a, &items, &Operand::from(1i64)).expect("sets");
        assert_eq!(set.shape(), [3, 0]);
        assert!(index::get(&a, &items).is_err());
    }
}

#[test]
fn masks_select_what_is_set() {
    let a = counted(&[4]);
    let mask = Index::Array(Value::from_slice(&[true, false, false, true], &[4]).expect("fits"));
    let one = index::set(&a, std::slice::from_ref(&mask), &Operand::from(9i64)).expect("sets");
    assert_eq!(read(&one), [9.0, 1.0, 2.0, 9.0]);
    let rows = counted(&[2, 2]);
    let mask = Index::Array(Value::from_slice(&[false, true], &[2]).expect("fits"));
    let set = index::set(&rows, &[mask], &integers(&[7, 8], &[2]).into()).expect("sets");
    assert_eq!(read(&set), [0.0, 1.0, 7.0, 8.0]);
}

#[test]
fn updates_count_every_occurrence() {
    let a = ops::zeros(&[3], DType::F32).expect("zeros");
    let indices = [Index::Array(integers(&[2, 0, 2], &[3]))];
    let values = Operand::from(floats(&[1.0, 2.0, 4.0], &[3]));
    let sum = index::update(&a, &indices, &values, Update::Add).expect("updates");
    assert_eq!(read(&sum), [2.0, 0.0, 5.0]);
    let least = index::update(&sum, &indices, &values, Update::Minimum).expect("updates");
    assert_eq!(read(&least), [2.0, 0.0, 1.0]);
    let range = [slice(1, None, None)];
    let less = index::update(&sum, &range, &Operand::from(1i64), Update::Subtract).expect("updates");
    assert_eq!(read(&less), [2.0, -1.0, 4.0]);
}

#[test]
fn errors_have_the_kinds_of_mlx() {
    let a = counted(&[2, 3]);
    assert_eq!(
        ops::sum(&a, Some(&[2]), false).expect_err("no such axis").kind,
        ErrorKind::Axis
    );
    assert_eq!(
        ops::reshape(&a, &[4]).expect_err("it does not fit").kind,
        ErrorKind::Value
    );
    assert_eq!(ops::matmul(&a, &a).expect_err("it does not fit").kind, ErrorKind::Value);
    assert_eq!(
        ops::concatenate(&[], Some(0)).expect_err("there are none").kind,
        ErrorKind::Value
    );
    let b = counted(&[4]);
    assert_eq!(
        ops::add(&a.into(), &b.into()).expect_err("no broadcast").kind,
        ErrorKind::Value
    );
}
