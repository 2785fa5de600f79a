//! Compares reductions, softmax, argmax and top-k on the device with the references.

use refrain_kernels::reduce::{self, ReduceOp};
use refrain_kernels::{Call, DType, Layout, OperandSpec, Traits, Values, argmax, softmax, top_k};

use crate::common::{Random, assert_close, bytes_of, operand, run, tolerance, values, variants};

/// Returns the device's traits, the minimum that Vulkan guarantees, and traits whose subgroups are twice as large as
/// the device's.
fn all_variants() -> Vec<Traits> {
    let mut all = variants();
    let own = all[0].clone();
    all.push(Traits {
        subgroup_size: 2 * own.subgroup_size,
        full_subgroups: false,
        ..own
    });
    all
}

/// Runs calls with a workspace of arbitrary contents; returns the contents of operand 1.
fn run_with_workspace((calls, workspace): (Vec<Call>, Option<OperandSpec>), operands: &[&[u8]]) -> Vec<u8> {
    let mut operands: Vec<Vec<u8>> = operands.iter().map(|bytes| bytes.to_vec()).collect();
    operands.extend(workspace.map(|workspace| vec![0xee; workspace.layout.count() * workspace.dtype.size()]));
    run(&calls, &operands, 1)
}

/// Row lengths that need part of a subgroup, several subgroups, or a large workgroup.
const COLUMNS: [usize; 7] = [1, 3, 8, 31, 100, 700, 20_001];

fn leading(random: &mut Random) -> Vec<usize> {
    let rank = random.below(3);
    (0..rank).map(|_| random.pick(&[1, 2, 3, 5, 17])).collect()
}

fn check_reduce(random: &mut Random, op: ReduceOp, dtype: DType, leading_shape: &[usize], reduced: &[usize]) {
    let Some(result) = reduce::output_dtype(op, dtype) else {
        return;
    };
    let shape = [leading_shape, reduced].concat();
    for traits in all_variants() {
        let (x, content) = operand(random, dtype, &shape, 1.5, true);
        let (out, before) = operand(random, result, leading_shape, 1.0, false);
        let calls = reduce::calls(&traits, op, &x, reduced.len(), &out).expect("supported");
        let after = run_with_workspace(calls, &[&content, &before]);
        let found = values(&out, &before, &after);
        let input = Values::load(dtype, &x.layout, &content);
        let columns = reduced.iter().product();
        let expected = reduce::reference(op, &input, out.layout.count(), columns).cast(result);
        // Where terms cancel, the sum of magnitudes bounds the rounding.
        let scale = if dtype == DType::F32 { 1e-4 } else { tolerance(dtype) };
        assert_close(&format!("{op:?} of {dtype} {}", x.layout), &found, &expected, scale);
    }
}

#[test]
fn reductions_match_the_reference_on_any_layout() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(11);
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            let leading_shape = leading(&mut random);
            let reduced = match random.below(3) {
                0 => vec![random.extent(), random.extent()],
                _ => vec![random.pick(&COLUMNS[..6])],
            };
            check_reduce(&mut random, op, dtype, &leading_shape, &reduced);
        }
    }
    for op in ReduceOp::ALL {
        check_reduce(&mut random, op, DType::F32, &[2], &[20_001]);
    }
}

#[test]
fn long_rows_are_split_and_combined() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(18);
    let columns = 300_001;
    for (op, dtype) in [
        (ReduceOp::Mean, DType::F32),
        (ReduceOp::Sum, DType::I32),
        (ReduceOp::Max, DType::BF16),
        (ReduceOp::Min, DType::I32),
        (ReduceOp::All, DType::U8),
    ] {
        let (x, out) = (
            OperandSpec::contiguous(dtype, &[columns]),
            reduce::output_dtype(op, dtype),
        );
        let out = OperandSpec::contiguous(out.expect("defined"), &[]);
        let (calls, workspace) = reduce::calls(&variants()[0], op, &x, 1, &out).expect("supported");
        assert!(calls.len() == 2 && workspace.is_some());
        check_reduce(&mut random, op, dtype, &[], &[columns]);
    }
    // Two rows over two dimensions, the outer of which is longer.
    check_reduce(&mut random, ReduceOp::Sum, DType::F32, &[2], &[70_000, 3]);
}

/// One workgroup could not read such a row before software drivers end its loops.
#[test]
fn sums_of_62_million_elements_are_complete() {
    let columns = 62_000_000;
    let (x, out) = (
        OperandSpec::contiguous(DType::U8, &[columns]),
        OperandSpec::contiguous(DType::U32, &[]),
    );
    let content: Vec<u8> = (0..columns).map(|index| (index % 251) as u8).collect();
    let expected: u64 = content.iter().map(|&x| u64::from(x)).sum();
    let calls = reduce::calls(&variants()[0], ReduceOp::Sum, &x, 1, &out).expect("supported");
    let found = run_with_workspace(calls, &[&content, &[0; 4]]);
    assert_eq!(found, (expected as u32).to_le_bytes());
}

#[test]
fn reductions_of_no_elements_give_the_identity() {
    let mut random = Random::new(12);
    use ReduceOp::{All, Any, Max, Mean, Min, Prod, Sum};
    for op in [Sum, Prod, Any, All, Mean] {
        check_reduce(&mut random, op, DType::F32, &[3], &[0]);
    }
    check_reduce(&mut random, Sum, DType::I32, &[3], &[2, 0]);
    let (x, y) = (
        OperandSpec::contiguous(DType::F32, &[3, 0]),
        OperandSpec::contiguous(DType::F32, &[3]),
    );
    for op in [Max, Min] {
        assert!(reduce::calls(&Traits::minimal(), op, &x, 1, &y).is_err());
    }
}

#[test]
fn strided_columns_are_reduced() {
    let x = OperandSpec {
        dtype: DType::F32,
        layout: Layout::contiguous(&[300, 1000]).permute(&[1, 0]),
    };
    let out = OperandSpec::contiguous(DType::F32, &[1000]);
    let content = Random::new(13).values(DType::F32, 300_000, 1.0);
    for traits in variants() {
        let calls = reduce::calls(&traits, ReduceOp::Max, &x, 1, &out).expect("supported");
        let found = run_with_workspace(calls, &[&bytes_of(DType::F32, &content), &[0; 4000]]);
        let rows = Values::load(DType::F32, &x.layout, &bytes_of(DType::F32, &content));
        let expected = reduce::reference(ReduceOp::Max, &rows, 1000, 300);
        assert_eq!(Values::load(DType::F32, &out.layout, &found), expected);
    }
}

#[test]
fn max_and_min_of_rows_with_nan_are_nan() {
    let x = OperandSpec::contiguous(DType::F32, &[2, 3]);
    let out = OperandSpec::contiguous(DType::F32, &[2]);
    let content = Values::F32(vec![1.0, f32::NAN, 3.0, -0.5, f32::NEG_INFINITY, -2.0]);
    for (op, second) in [(ReduceOp::Max, -0.5), (ReduceOp::Min, f32::NEG_INFINITY)] {
        for traits in variants() {
            let calls = reduce::calls(&traits, op, &x, 1, &out).expect("supported");
            let found = run_with_workspace(calls, &[&bytes_of(DType::F32, &content), &[0; 8]]);
            let found = Values::load(DType::F32, &out.layout, &found);
            assert!(found.f32()[0].is_nan());
            assert_eq!(found.f32()[1], second);
        }
    }
}

#[test]
fn softmax_matches_the_reference_on_any_layout() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let mut random = Random::new(14);
    for (from, to) in [
        (DType::F32, DType::F32),
        (DType::F16, DType::F32),
        (DType::BF16, DType::BF16),
        (DType::F32, DType::F16),
    ] {
        for columns in COLUMNS {
            let mut shape = leading(&mut random);
            shape.push(columns);
            for traits in all_variants() {
                let (x, content) = operand(&mut random, from, &shape, 20.0, true);
                let (out, before) = operand(&mut random, to, &shape, 1.0, false);
                let call = softmax::call(&traits, &x, &out).expect("supported");
                let after = run(&[call], &[content.clone(), before.clone()], 1);
                let found = values(&out, &before, &after);
                let input = Values::load(from, &x.layout, &content);
                let expected = Values::F32(softmax::reference(input.f32(), columns));
                assert_close(&format!("softmax of {}", x.layout), &found, &expected, tolerance(to));
            }
        }
    }
}

#[test]
fn softmax_of_masked_rows_is_finite_unless_all_are_masked() {
    let x = OperandSpec::contiguous(DType::F32, &[3, 2]);
    let inf = f32::NEG_INFINITY;
    let content = Values::F32(vec![inf, 5.0, -3e38, -3e38, inf, inf]);
    for traits in variants() {
        let call = softmax::call(&traits, &x, &x).expect("supported");
        let found = run(&[call], &[bytes_of(DType::F32, &content), vec![0; 24]], 1);
        let found = Values::load(DType::F32, &x.layout, &found);
        let expected = Values::F32(softmax::reference(content.f32(), 2));
        assert_close("masked", &found, &expected, 1e-6);
        assert_eq!(found.f32()[..4], [0.0, 1.0, 0.5, 0.5]);
    }
}

/// Returns random values with many ties, and NaN and infinities among floats.
fn with_ties(random: &mut Random, dtype: DType, count: usize) -> Values {
    let mut values = random.values(dtype, count, 4.0);
    if let Values::F32(x) = &mut values {
        for x in x.iter_mut() {
            *x = match random.below(200) {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => -0.0,
                3..100 => x.round(),
                _ => *x,
            };
        }
    }
    values
}

/// Values in a random layout, with their bytes.
fn laid_out(random: &mut Random, dtype: DType, shape: [usize; 2], values: &Values) -> (OperandSpec, Vec<u8>) {
    let layout = random.layout(&shape, false);
    let mut bytes = vec![0; layout.end() * dtype.size()];
    values.store(dtype, &layout, &mut bytes);
    (OperandSpec { dtype, layout }, bytes)
}

fn check_selections(random: &mut Random, dtype: DType, rows: usize, columns: usize, k: usize) {
    let content = with_ties(random, dtype, rows * columns).rounded(dtype);
    let contiguous = Layout::contiguous(&[rows, columns]);
    for traits in all_variants() {
        let (x, bytes) = laid_out(random, dtype, [rows, columns], &content);
        let (indices, before) = operand(random, DType::U32, &[rows, k], 1.0, false);
        let calls = top_k::calls(&traits, &x, &indices, None).expect("supported");
        let after = run_with_workspace(calls, &[&bytes, &before]);
        let expected = Values::U32(top_k::reference(&content, columns, k));
        let what = format!("top {k} of {dtype} {contiguous}");
        assert_close(&what, &values(&indices, &before, &after), &expected, 0.0);

        let (index, before) = operand(random, DType::U32, &[rows], 1.0, false);
        let calls = argmax::calls(&traits, &x, &index).expect("supported");
        let after = run_with_workspace(calls, &[&bytes, &before]);
        let expected = Values::U32(argmax::reference(&content, columns));
        let what = format!("argmax of {dtype} {contiguous}");
        assert_close(&what, &values(&index, &before, &after), &expected, 0.0);
    }
}

#[test]
fn top_k_and_argmax_order_ties_by_index() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(15);
    for dtype in DType::ALL {
        for columns in [1usize, 2, 9, 300, 5000] {
            let k = random.pick(&[1, columns.div_ceil(3), columns.min(64), columns]);
            let rows = random.pick(&[1, 3, 7]);
            check_selections(&mut random, dtype, rows, columns, k);
        }
    }
}

#[test]
fn several_workgroups_search_a_long_row() {
    let mut random = Random::new(31);
    let mut is_split = false;
    for (dtype, rows, columns) in [
        (DType::F32, 2, 151_936),
        (DType::BF16, 1, 70_001),
        (DType::U8, 3, 100_000),
        (DType::I32, 1, 248_320),
    ] {
        let content = with_ties(&mut random, dtype, rows * columns).rounded(dtype);
        for traits in all_variants() {
            let (x, bytes) = laid_out(&mut random, dtype, [rows, columns], &content);
            let (index, before) = operand(&mut random, DType::U32, &[rows], 1.0, false);
            let calls = argmax::calls(&traits, &x, &index).expect("supported");
            is_split |= calls.0.len() == 2;
            let after = run_with_workspace(calls, &[&bytes, &before]);
            let expected = Values::U32(argmax::reference(&content, columns));
            let what = format!("argmax of {rows} × {columns} {dtype}");
            assert_close(&what, &values(&index, &before, &after), &expected, 0.0);
        }
    }
    assert!(is_split, "the device takes several workgroups");
}

#[test]
fn top_k_of_a_vocabulary_gives_few_or_thousands() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(16);
    check_selections(&mut random, DType::F32, 2, 151_936, 40);
    // Shorter, because GPU-assisted address checks add loop iterations, and software drivers end loops after 65,535.
    check_selections(&mut random, DType::BF16, 1, 30_000, 3000);
}

#[test]
fn top_k_splits_long_rows_across_workgroups() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let mut random = Random::new(19);
    let (x, indices) = (
        OperandSpec::contiguous(DType::F32, &[100_000]),
        OperandSpec::contiguous(DType::U32, &[7]),
    );
    let (calls, workspace) = top_k::calls(&variants()[0], &x, &indices, None).expect("supported");
    assert!(calls.len() == 2 && workspace.is_some());
    for (dtype, columns, k) in [
        (DType::F32, 100_000, 7),
        (DType::BF16, 70_001, 1000),
        (DType::I32, 65_537, 1),
        (DType::Bool, 80_000, 300),
    ] {
        check_selections(&mut random, dtype, 1, columns, k);
    }
}

#[test]
fn top_k_of_4_million_elements() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let columns = 4_000_000;
    let mut random = Random::new(20);
    let content = Values::U32((0..columns).map(|_| random.below(1 << 30) as u32).collect());
    let x = OperandSpec::contiguous(DType::U32, &[columns]);
    let bytes = bytes_of(DType::U32, &content);
    for k in [40, 1500] {
        let out = OperandSpec::contiguous(DType::U32, &[k]);
        let calls = top_k::calls(&variants()[0], &x, &out, None).expect("supported");
        let found = run_with_workspace(calls, &[&bytes, &vec![0; 4 * k]]);
        let expected = Values::U32(top_k::reference(&content, columns, k));
        assert_eq!(Values::load(DType::U32, &out.layout, &found), expected);
    }
}

#[test]
fn top_k_of_equal_elements_is_in_index_order() {
    let x = OperandSpec::contiguous(DType::F32, &[1, 3000]);
    let out = OperandSpec::contiguous(DType::U32, &[1, 1500]);
    for traits in variants() {
        let calls = top_k::calls(&traits, &x, &out, None).expect("supported");
        let found = run_with_workspace(calls, &[&[0; 12_000], &[0; 6000]]);
        let expected = Values::U32((0..1500).collect());
        assert_eq!(Values::load(DType::U32, &out.layout, &found), expected);
    }
}

#[test]
fn top_k_of_all_elements_sorts_a_vocabulary() {
    let columns = 20_000;
    let content = Random::new(17).values(DType::F32, columns, 1.0);
    let (x, out) = (
        OperandSpec::contiguous(DType::F32, &[columns]),
        OperandSpec::contiguous(DType::U32, &[columns]),
    );
    let calls = top_k::calls(&variants()[0], &x, &out, None).expect("supported");
    let found = run_with_workspace(calls, &[&bytes_of(DType::F32, &content), &vec![0; 4 * columns]]);
    let expected = Values::U32(top_k::reference(&content, columns, columns));
    assert_eq!(Values::load(DType::U32, &out.layout, &found), expected);
}

#[test]
fn rejects_k_out_of_range_and_empty_rows() {
    let traits = Traits::minimal();
    let (x, empty) = (
        OperandSpec::contiguous(DType::F32, &[2, 3]),
        OperandSpec::contiguous(DType::F32, &[2, 0]),
    );
    let four = OperandSpec::contiguous(DType::U32, &[2, 4]);
    let error = top_k::calls(&traits, &x, &four, None).expect_err("k is too large");
    assert_eq!(
        error.to_string(),
        "top_k: k is 4, but must be from 1 to 3, the number of elements"
    );
    let one = OperandSpec::contiguous(DType::U32, &[2]);
    assert!(argmax::calls(&traits, &empty, &one).is_err());
}
