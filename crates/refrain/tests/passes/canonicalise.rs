use insta::assert_snapshot;
use refrain::{Array, DType, Device};

use crate::{array, canonical, traced};

#[test]
fn views_become_layouts_of_edges() {
    let x = array(&Device::cpu(), &[4, 6]);
    let view = x
        .slice_by(1, 1, 6, 2)
        .permute(&[1, 0])
        .expand_dims(1)
        .broadcast_to(&[3, 5, 4]);
    let sum = view.sum(&[-1]);
    assert_snapshot!(traced(&[&sum]), @r"
    %0 = weight f32[4, 6] ()
    %1 = slice [0, 1]..[4, 6] by [1, 2] f32[4, 3] (%0)
    %2 = permute [1, 0] f32[3, 4] (%1)
    %3 = reshape f32[3, 1, 4] (%2)
    %4 = broadcast f32[3, 5, 4] (%3)
    %5 = reduce Sum over 1 f32[3, 5] (%4)
    return %5
    ");
    assert_snapshot!(canonical(&[&sum, &view]), @r"
    %0 = weight f32[4, 6] ()
    %1 = reduce Sum over 1 f32[3, 5] (%0[3, 5, 4]/[2, 0, 6]+1)
    return %1, %0[3, 5, 4]/[2, 0, 6]+1
    ");
}

#[test]
fn reshape_copies_only_if_the_elements_are_in_another_order() {
    let x = array(&Device::cpu(), &[4, 6]);
    let split = x.transpose().reshape(&[2, 3, 4]).softmax();
    let joined = x.transpose().reshape(&[24]).softmax();
    assert_snapshot!(canonical(&[&split]), @r"
    %0 = weight f32[4, 6] ()
    %1 = softmax f32[2, 3, 4] (%0[2, 3, 4]/[3, 1, 6])
    return %1
    ");
    assert_snapshot!(canonical(&[&joined]), @r"
    %0 = weight f32[4, 6] ()
    %1 = elementwise {x0} f32[6, 4] (%0[6, 4]/[1, 6])
    %2 = softmax f32[24] (%1)
    return %2
    ");
}

#[test]
fn rows_read_from_a_state_are_copied_before_it_is_updated() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F32, &[4, 2]).unwrap();
    let slots = Array::input(&device, "slots", DType::I32, &[2]);
    let first = state.write_rows(&state.slice(0, 2, 4), &slots);
    let second = first.write_rows(&array(&device, &[2, 2]), &slots);
    assert_snapshot!(canonical(&[&second]), @r"
    %0 = state f32[4, 2] ()
    %1 = input slots i32[2] ()
    %2 = elementwise {x0} f32[2, 2] (%0[2, 2]+4)
    %3 = write_rows f32[4, 2] (%0, %2, %1)
    %4 = weight f32[2, 2] ()
    %5 = write_rows f32[4, 2] (%3, %4, %1)
    return %5
    ");
}
