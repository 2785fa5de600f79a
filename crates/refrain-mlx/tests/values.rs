//! Values and functions against results of MLX 0.32.4 on its CPU.

use refrain_mlx::index::{self, Index, Update};
use refrain_mlx::{DType, ErrorKind, Number, Operand, Value, eval, fast, ops, random};

fn floats(elements: &[f32], shape: &[usize]) -> Value {
    Value::from_slice(elements, shape).expect("it fits")
}

fn integers(elements: &[i32], shape: &[usize]) -> Value {
    Value::from_slice(elements, shape).expect("it fits")
}

/// 0, 1, 2, … in a shape.
fn counted(shape: &[usize]) -> Value {
    let n: usize = shape.iter().product();
    integers(&(0..n as i32).collect::<Vec<_>>(), shape)
}

fn read(value: &Value) -> Vec<f32> {
    value
        .cast(DType::F32)
        .expect("it converts")
        .to_vec()
        .expect("it computes")
}

fn near(value: &Value, expected: &[f32]) {
    let found = read(value);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        let bound = 2e-6 * expected.abs().max(1e-3);
        assert!((found - expected).abs() <= bound, "{found} instead of {expected}");
    }
}

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
fn integer_division_rounds_down() {
    let a = integers(&[7, -7, 7, -7, 2_000_000_001, i32::MAX], &[6]);
    let b = integers(&[2, 2, -2, -2, 3, 1], &[6]);
    let (a, b) = (Operand::from(a), Operand::from(b));
    let quotients: Vec<i32> = ops::floor_divide(&a, &b).expect("divides").to_vec().expect("i32");
    assert_eq!(quotients, [3, -4, -4, 3, 666_666_667, i32::MAX]);
    let rests: Vec<i32> = ops::remainder(&a, &b).expect("divides").to_vec().expect("i32");
    assert_eq!(rests, [1, 1, -1, -1, 0, 0]);
    let powers = ops::power(&counted(&[4]).into(), &Operand::from(5i64)).expect("powers");
    assert_eq!(
        (powers.dtype(), read(&powers)),
        (DType::I32, vec![0.0, 1.0, 32.0, 243.0])
    );
}

#[test]
fn functions_without_a_kernel_are_accurate() {
    let x = floats(&[-0.9, -0.3, 1e-6, 0.5, 0.99], &[5]);
    let exact = |function: fn(f64) -> f64| -> Vec<f32> {
        [-0.9f32, -0.3, 1e-6, 0.5, 0.99]
            .map(|x| function(f64::from(x)) as f32)
            .to_vec()
    };
    type Function = fn(&Operand) -> refrain_mlx::Result<Value>;
    let functions: [(Function, fn(f64) -> f64); 11] = [
        (ops::expm1, f64::exp_m1),
        (ops::log1p, f64::ln_1p),
        (ops::sinh, f64::sinh),
        (ops::cosh, f64::cosh),
        (ops::tan, f64::tan),
        (ops::arcsin, f64::asin),
        (ops::arccos, f64::acos),
        (ops::arctan, f64::atan),
        (ops::arcsinh, f64::asinh),
        (ops::arctanh, f64::atanh),
        (ops::square, |x| x * x),
    ];
    for (function, reference) in functions {
        near(&function(&(&x).into()).expect("computes"), &exact(reference));
    }
    let inverse = ops::erfinv(&ops::erf(&(&x).into()).expect("erf").into()).expect("erfinv");
    for (found, expected) in read(&inverse).iter().zip(read(&x)) {
        assert!((found - expected).abs() < 3e-6, "{found} instead of {expected}");
    }
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
fn along_an_axis() {
    let a = counted(&[2, 3]);
    let indices = integers(&[2, 0, -1, 1], &[2, 2]);
    let taken = ops::take_along_axis(&a, &indices, Some(1)).expect("takes");
    assert_eq!(read(&taken), [2.0, 0.0, 5.0, 4.0]);
    let put =
        ops::put_along_axis(&a, &indices, &Value::scalar(Number::Int(9), None).expect("9"), Some(-1)).expect("puts");
    assert_eq!(read(&put), [9.0, 1.0, 9.0, 3.0, 9.0, 9.0]);
    let first = ops::take_along_axis(&a, &integers(&[1, 0, 1], &[1, 3]), Some(0)).expect("takes");
    assert_eq!(read(&first), [3.0, 1.0, 5.0]);
}

#[test]
fn sorting_and_scans() {
    let a = floats(&[3.0, 1.0, 2.0, 1.0, f32::NAN, -1.0], &[2, 3]);
    let order = ops::argsort(&a, Some(-1)).expect("sorts");
    assert_eq!(
        (order.dtype(), read(&order)),
        (DType::U32, vec![1.0, 2.0, 0.0, 2.0, 0.0, 1.0])
    );
    let scan = |reverse, inclusive| {
        let x = counted(&[4]);
        read(&ops::cumsum(&x, Some(0), reverse, inclusive).expect("sums"))
    };
    assert_eq!(scan(false, true), [0.0, 1.0, 3.0, 6.0]);
    assert_eq!(scan(false, false), [0.0, 0.0, 1.0, 3.0]);
    assert_eq!(scan(true, true), [6.0, 6.0, 5.0, 3.0]);
    assert_eq!(scan(true, false), [6.0, 5.0, 3.0, 0.0]);
    let found = ops::searchsorted(
        &floats(&[1.0, 2.0, 2.0, 4.0], &[4]),
        &floats(&[2.0, 0.0], &[2]).into(),
        false,
    );
    assert_eq!(read(&found.expect("finds")), [1.0, 0.0]);
}

#[test]
fn quantised_values_survive_packing() {
    let words = [
        (2, [3413519832u32, 3716904685, 1658633074, 3073236151]),
        (3, [2501094504, 3472533111, 4012517208, 2979919180]),
    ];
    for bits in [2, 3, 4, 5, 6, 8] {
        let w: Vec<f32> = (0..2 * 64).map(|n| ((n * 37) % 64) as f32 / 16.0 - 2.0).collect();
        let w = floats(&w, &[2, 64]);
        let planes = ops::quantize(&w, Some(32), Some(bits), "affine").expect("quantises");
        if let Some((_, expected)) = words.iter().find(|(known, _)| *known == bits) {
            let found: Vec<u32> = planes[0].to_vec().expect("u32");
            assert_eq!(found[..4], *expected, "{bits} bits");
        }
        assert_eq!(planes[0].shape(), [2, 2 * bits as usize]);
        let back = ops::dequantize(
            &planes[0],
            &planes[1],
            Some(&planes[2]),
            Some(32),
            Some(bits),
            "affine",
            None,
        );
        let step = 4.0 / ((1 << bits) - 1) as f32;
        for (found, expected) in read(&back.expect("dequantises")).iter().zip(read(&w)) {
            assert!(
                (found - expected).abs() <= 1.1 * step,
                "{bits} bits: {found} instead of {expected}"
            );
        }
        let x = floats(&[0.25; 64], &[1, 64]);
        let fused = ops::quantized_matmul(
            &x,
            &planes[0],
            &planes[1],
            Some(&planes[2]),
            true,
            Some(32),
            Some(bits),
            "affine",
        );
        let back = ops::dequantize(
            &planes[0],
            &planes[1],
            Some(&planes[2]),
            Some(32),
            Some(bits),
            "affine",
            None,
        );
        let composed = ops::matmul(
            &x,
            &ops::transpose(&back.expect("dequantises"), None).expect("transposes"),
        );
        let (fused, composed) = (read(&fused.expect("multiplies")), read(&composed.expect("multiplies")));
        for (fused, composed) in fused.iter().zip(&composed) {
            assert!((fused - composed).abs() < 1e-4, "{bits} bits: {fused} and {composed}");
        }
    }
}

#[test]
fn convolutions_are_sums_over_the_kernel() {
    let x = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1, 4, 2]);
    let w = floats(&[1.0, 10.0, 100.0, 1000.0], &[2, 2, 1]);
    let depthwise = ops::conv1d(&x, &w, 1, 0, 1, 2).expect("convolves");
    assert_eq!(
        (depthwise.shape(), read(&depthwise)),
        (&[1, 3, 2][..], vec![31.0, 4200.0, 53.0, 6400.0, 75.0, 8600.0])
    );
    let w = floats(&[1.0, 10.0, 100.0, 1000.0], &[1, 2, 2]);
    let full = ops::conv1d(&x, &w, 2, 1, 1, 1).expect("convolves");
    assert_eq!(
        (full.shape(), read(&full)),
        (&[1, 3, 1][..], vec![2100.0, 6543.0, 87.0])
    );
}

#[test]
fn random_numbers_are_those_of_mlx() {
    let key = random::key(0).expect("a key");
    let halves: Vec<u32> = random::split(&key, 2).expect("splits").to_vec().expect("u32");
    assert_eq!(halves, [4146024105, 967050713, 2718843009, 1272950319]);
    let third = random::split(&random::key((1 << 33) + 5).expect("a key"), 3).expect("splits");
    let third: Vec<u32> = third.to_vec().expect("u32");
    assert_eq!(
        third,
        [1198540469, 3701517536, 2729587019, 870705707, 1558534300, 2056470729]
    );
    let (low, high) = (Operand::from(0.0), Operand::from(1.0));
    let uniform = random::uniform(&low, &high, &[5], DType::F32, Some(&key)).expect("draws");
    near(&uniform, &[0.574501, 0.0996861, 0.39316, 0.894178, 0.596567]);
    let normal = random::normal(&[4], DType::F32, None, None, Some(&key)).expect("draws");
    near(&normal, &[1.81609, -0.754885, 0.339889, -0.534835]);
    random::seed(3).expect("seeds");
    let next = || random::uniform(&low, &high, &[3], DType::F32, None).expect("draws");
    near(&next(), &[0.745215, 0.0406474, 0.95116]);
    near(&next(), &[0.280964, 0.463252, 0.498177]);
    let logits = floats(&[0.1, 2.0, 3.0], &[1, 3]);
    let drawn = random::categorical(&logits, -1, None, Some(5), Some(&key)).expect("draws");
    assert_eq!(
        (drawn.shape(), read(&drawn)),
        (&[1, 5][..], vec![2.0, 1.0, 2.0, 2.0, 2.0])
    );
    let rows = floats(&[0.1, 2.0, 3.0, 3.0, 2.0, 0.1], &[2, 3]);
    let drawn = random::categorical(&rows, -1, None, None, Some(&key)).expect("draws");
    assert_eq!(read(&drawn), [2.0, 0.0]);
    let (low, high) = (Operand::from(0i64), Operand::from(10i64));
    let integers = random::randint(&low, &high, &[6], DType::I32, Some(&key)).expect("draws");
    assert_eq!(read(&integers), [5.0, 0.0, 7.0, 8.0, 5.0, 4.0]);
    let order = random::permutation_of(6, Some(&key)).expect("draws");
    assert_eq!(read(&order), [1.0, 5.0, 0.0, 4.0, 2.0, 3.0]);
}

#[test]
fn attention_with_a_mask_and_a_sink() {
    let q = floats(&[1.0, 0.0, 0.0, 1.0], &[1, 2, 1, 2]);
    let k = floats(&[1.0, 0.0, 0.0, 1.0], &[1, 1, 2, 2]);
    let v = floats(&[1.0, 3.0], &[1, 1, 2, 1]);
    let attend = |mask: &fast::Mask, sinks: Option<&Value>| {
        read(&fast::scaled_dot_product_attention(&q, &k, &v, 1.0, mask, sinks).expect("attends"))
    };
    let e = std::f32::consts::E;
    near(
        &floats(&attend(&fast::Mask::None, None), &[2]),
        &[(e + 3.0) / (e + 1.0), (1.0 + 3.0 * e) / (e + 1.0)],
    );
    let sinks = floats(&[0.0, 1.0], &[2]);
    near(
        &floats(&attend(&fast::Mask::None, Some(&sinks)), &[2]),
        &[(e + 3.0) / (e + 2.0), (1.0 + 3.0 * e) / (2.0 * e + 1.0)],
    );
    let mask = Value::from_slice(&[false, true], &[2]).expect("fits");
    near(&floats(&attend(&fast::Mask::Value(mask), None), &[2]), &[3.0, 3.0]);
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
