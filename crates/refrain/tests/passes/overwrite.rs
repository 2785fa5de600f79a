use insta::assert_snapshot;
use refrain::{Array, DType, Device, passes};

use crate::{array, canonical};

fn overwritten(outputs: &[&Array]) -> String {
    passes::overwrite(canonical(outputs)).to_string()
}

fn with_first_row(x: &Array, row: &Array) -> Array {
    x.slice_update(row, &[0, 0], &[1, 3], &[1, 1])
}

#[test]
fn what_only_an_update_uses_is_written_over() {
    let device = Device::cpu();
    let (x, row) = (array(&device, &[2, 3]), array(&device, &[3]));
    let sum = &x + &x;
    let slots = Array::input(&device, "slots", DType::I32, &[1]);
    let both = with_first_row(&sum, &row).scatter_rows(&array(&device, &[1, 3]), &slots);
    assert_snapshot!(overwritten(&[&both]), @r"
    %0 = weight f32[2, 3] ()
    %1 = weight f32[3] ()
    %2 = elementwise {x0 + x1} f32[2, 3] (%0, %0)
    %3 = input slots i32[1] ()
    %4 = slice_update_in_place [0, 0]..[1, 3] by [1, 1] f32[2, 3] (%2, %1)
    %5 = weight f32[1, 3] ()
    %6 = write_rows f32[2, 3] (%4, %5, %3)
    return %6
    ");
}

#[test]
fn what_others_use_and_what_is_no_memory_of_its_own_is_copied() {
    let device = Device::cpu();
    let (x, row) = (array(&device, &[2, 3]), array(&device, &[3]));
    let sum = &x + &x;
    assert_snapshot!(overwritten(&[&with_first_row(&sum, &row), &sum]), @r"
    %0 = weight f32[2, 3] ()
    %1 = weight f32[3] ()
    %2 = elementwise {x0 + x1} f32[2, 3] (%0, %0)
    %3 = elementwise {x0} f32[2, 3] (%2)
    %4 = slice_update_in_place [0, 0]..[1, 3] by [1, 1] f32[2, 3] (%3, %1)
    return %4, %2
    ");
    assert_snapshot!(overwritten(&[&with_first_row(&x, &row)]), @r"
    %0 = weight f32[2, 3] ()
    %1 = weight f32[3] ()
    %2 = elementwise {x0} f32[2, 3] (%0)
    %3 = slice_update_in_place [0, 0]..[1, 3] by [1, 1] f32[2, 3] (%2, %1)
    return %3
    ");
    let zeros = Array::full(&device, DType::F32, &[], 0).broadcast_to(&[2, 3]);
    assert_snapshot!(overwritten(&[&with_first_row(&zeros, &row)]), @r"
    %0 = weight f32[3] ()
    %1 = elementwise {0.0} f32[] ()
    %2 = elementwise {x0} f32[2, 3] (%1[2, 3]/[0, 0])
    %3 = slice_update_in_place [0, 0]..[1, 3] by [1, 1] f32[2, 3] (%2, %0)
    return %3
    ");
    let turned = (&array(&device, &[3, 2]) + 1.0).transpose();
    assert_snapshot!(overwritten(&[&with_first_row(&turned, &row)]), @r"
    %0 = weight f32[3] ()
    %1 = weight f32[3, 2] ()
    %2 = elementwise {x0 + 1.0} f32[3, 2] (%1)
    %3 = elementwise {x0} f32[2, 3] (%2[2, 3]/[1, 2])
    %4 = slice_update_in_place [0, 0]..[1, 3] by [1, 1] f32[2, 3] (%3, %0)
    return %4
    ");
}

#[test]
fn an_update_of_all_elements_is_a_copy() {
    let device = Device::cpu();
    let (x, part) = (array(&device, &[2, 3]), array(&device, &[3, 2]).transpose());
    let updated = (&x + &x).slice_update(&part, &[0, 0], &[2, 3], &[1, 1]);
    assert_snapshot!(overwritten(&[&updated]), @r"
    %0 = weight f32[2, 3] ()
    %1 = weight f32[3, 2] ()
    %2 = elementwise {x0 + x1} f32[2, 3] (%0, %0)
    %3 = elementwise {x0} f32[2, 3] (%1[2, 3]/[1, 2])
    return %3
    ");
}
