//! Compares take, take-along, row writes and slots on the device with the references.

use refrain_kernels::{DType, OperandSpec, Values, slots, take, take_along, write_rows};

use crate::common::{Random, assert_close, bytes_of, index_values, operand, run, values, variants};

/// Returns an index operand of random layout with indices inside and outside `extent`.
fn indices(random: &mut Random, dtype: DType, shape: &[usize], extent: usize) -> (OperandSpec, Vec<u8>) {
    let layout = random.layout(shape, true);
    let content = index_values(random, dtype, layout.end(), extent);
    (OperandSpec { dtype, layout }, bytes_of(dtype, &content))
}

#[test]
fn take_matches_the_reference_along_any_axis() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(21);
    for dtype in DType::ALL {
        for round in 0..4 {
            let table_shape: Vec<usize> = (0..=round % 3).map(|_| random.extent()).collect();
            let axis = random.below(table_shape.len());
            let picked: Vec<usize> = (0..random.below(3)).map(|_| random.extent()).collect();
            for traits in variants() {
                let (table, content) = operand(&mut random, dtype, &table_shape, 2.0, true);
                let index_dtype = random.pick(&[DType::I32, DType::U32]);
                let (index, index_bytes) = indices(&mut random, index_dtype, &picked, table_shape[axis]);
                let shape = take::output_shape(&table_shape, &picked, axis);
                let (out, before) = operand(&mut random, dtype, &shape, 2.0, false);
                let call = take::call(&traits, &table, &index, axis, &out).expect("supported");
                let after = run(&[call], &[content.clone(), index_bytes.clone(), before.clone()], 2);
                let expected = take::reference(
                    &Values::load(dtype, &table.layout, &content),
                    &table_shape,
                    &Values::load(index_dtype, &index.layout, &index_bytes),
                    axis,
                );
                let what = format!("{dtype} {} by {} along {axis}", table.layout, index.layout);
                assert_close(&what, &values(&out, &before, &after), &expected, 0.0);
            }
        }
    }
}

#[test]
fn take_along_matches_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(22);
    for dtype in DType::ALL {
        for _ in 0..3 {
            let mut shape: Vec<usize> = (0..random.below(3)).map(|_| random.extent()).collect();
            let (n, m) = (random.extent(), random.extent());
            shape.push(n);
            let mut picked = shape.clone();
            *picked.last_mut().expect("a last axis") = m;
            for traits in variants() {
                let (x, content) = operand(&mut random, dtype, &shape, 2.0, true);
                let (index, index_bytes) = indices(&mut random, DType::I32, &picked, n);
                let (out, before) = operand(&mut random, dtype, &picked, 2.0, false);
                let call = take_along::call(&traits, &x, &index, &out).expect("supported");
                let after = run(&[call], &[content.clone(), index_bytes.clone(), before.clone()], 2);
                let expected = take_along::reference(
                    &Values::load(dtype, &x.layout, &content),
                    n,
                    &Values::load(DType::I32, &index.layout, &index_bytes),
                    m,
                );
                let what = format!("{dtype} {} by {}", x.layout, index.layout);
                assert_close(&what, &values(&out, &before, &after), &expected, 0.0);
            }
        }
    }
}

/// Returns distinct slots, some of them outside the state.
fn slots(random: &mut Random, count: usize, extent: usize) -> Vec<i32> {
    let mut all: Vec<i32> = (-2..extent as i32 + 2).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i + 1));
    }
    all.truncate(count);
    all
}

#[test]
fn write_rows_changes_only_the_given_slots() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(23);
    for state_dtype in DType::ALL {
        for dtype in DType::ALL {
            if dtype != state_dtype && !(dtype.is_float() && state_dtype.is_float()) {
                continue;
            }
            let row: Vec<usize> = (0..random.below(3)).map(|_| random.extent()).collect();
            let width: usize = row.iter().product();
            let (count, extent) = (random.pick(&[1, 4, 9]), 11);
            for traits in variants() {
                let rows_shape = [&[count], &row[..]].concat();
                let (rows, content) = operand(&mut random, dtype, &rows_shape, 2.0, true);
                let slots = Values::I32(slots(&mut random, count, extent));
                let slot_operand = OperandSpec::contiguous(DType::I32, &[count]);
                let state = OperandSpec::contiguous(state_dtype, &[&[extent], &row[..]].concat());
                let mut expected = random.values(state_dtype, extent * width, 1.0);
                let before = bytes_of(state_dtype, &expected);
                let call = write_rows::call(&traits, &rows, &slot_operand, &state);
                let operands = [content.clone(), bytes_of(DType::I32, &slots), before.clone()];
                let after = run(&[call.expect("supported")], &operands, 2);
                let Values::I32(slots) = slots else { unreachable!() };
                let rows_values = Values::load(dtype, &rows.layout, &content);
                write_rows::reference(&rows_values, &slots, width, state_dtype, &mut expected);
                let what = format!("{dtype} {} into {state_dtype}", rows.layout);
                assert_close(&what, &values(&state, &before, &after), &expected, 0.0);
            }
        }
    }
}

#[test]
fn write_rows_rejects_mismatched_shapes_and_gaps() {
    let rows = OperandSpec::contiguous(DType::F32, &[2, 3]);
    let slots = OperandSpec::contiguous(DType::I32, &[2]);
    let state = OperandSpec::contiguous(DType::F32, &[8, 4]);
    let error = write_rows::call(&variants()[0], &rows, &slots, &state).expect_err("3 is not 4");
    assert_eq!(
        error.to_string(),
        "write_rows: rows of shape [2, 3] and slots of shape [2] do not match a state of shape [8, 4]"
    );
    let mut gaps = OperandSpec::contiguous(DType::F32, &[8, 3]);
    gaps.layout.strides[0] = 4;
    assert!(write_rows::call(&variants()[0], &rows, &slots, &gaps).is_err());
}

#[test]
fn slots_match_the_reference() {
    let mut random = Random::new(24);
    for _ in 0..6 {
        let (tokens, rows, table) = (random.extent(), random.extent(), random.extent());
        let page_size = random.pick(&[1, 3, 16, 256]);
        let capacity = table * page_size;
        let positions: Vec<i32> = (0..tokens).map(|_| random.below(capacity + 4) as i32 - 2).collect();
        let sequences: Vec<u32> = (0..tokens).map(|_| random.below(rows + 1) as u32).collect();
        let pages: Vec<u32> = (0..rows * table).map(|_| random.below(99) as u32).collect();
        let operands = [
            OperandSpec::contiguous(DType::I32, &[tokens]),
            OperandSpec::contiguous(DType::U32, &[tokens]),
            OperandSpec::contiguous(DType::U32, &[rows, table]),
            OperandSpec::contiguous(DType::I32, &[tokens]),
        ];
        let contents = [
            bytemuck::cast_slice(&positions).to_vec(),
            bytemuck::cast_slice(&sequences).to_vec(),
            bytemuck::cast_slice(&pages).to_vec(),
            vec![0; 4 * tokens],
        ];
        for traits in variants() {
            let [p, s, t, out] = &operands;
            let call = slots::call(&traits, p, s, t, out, page_size).expect("supported");
            let after = run(&[call], &contents, 3);
            let expected = slots::reference(&positions, &sequences, &pages, &[rows, table], page_size);
            assert_eq!(bytemuck::cast_slice::<u8, i32>(&after), expected);
        }
    }
}
