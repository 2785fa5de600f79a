use insta::assert_snapshot;
use refrain::{Array, DType, Device};

use crate::{array, fused};

#[test]
fn a_chain_with_constants_becomes_one_node() {
    let device = Device::cpu();
    let (x, row) = (array(&device, &[3, 4]), array(&device, &[4]));
    let gate = (&x * 2.0 + &row).sigmoid();
    let y = gate.astype(DType::F16) * Array::arange(&device, DType::F16, 12).reshape(&[3, 4]);
    assert_snapshot!(fused(&[&y.reshape(&[12])]), @r"
    %0 = weight f32[3, 4] ()
    %1 = weight f32[4] ()
    %2 = elementwise {f16(sigmoid((x1 * 2.0) + x0)) * f16(index)} f16[3, 4] (%1[3, 4]/[0, 1], %0)
    return %2
    ");
}

#[test]
fn a_node_used_twice_by_one_node_is_fused() {
    let x = array(&Device::cpu(), &[4]);
    let y = (&x + 1.0).silu();
    assert_snapshot!(fused(&[&(&y * &y)]), @r"
    %0 = weight f32[4] ()
    %1 = elementwise {t2 = x0 + 1.0; t4 = t2 * sigmoid(t2); t4 * t4} f32[4] (%0)
    return %1
    ");
}

#[test]
fn a_node_whose_other_user_was_fused_first_is_fused() {
    let x = array(&Device::cpu(), &[4]);
    let y = &x + 1.0;
    assert_snapshot!(fused(&[&(&y * y.sigmoid())]), @r"
    %0 = weight f32[4] ()
    %1 = elementwise {t2 = x0 + 1.0; t2 * sigmoid(t2)} f32[4] (%0)
    return %1
    ");
}

#[test]
fn nodes_with_several_users_and_outputs_are_not_fused() {
    let x = array(&Device::cpu(), &[4]);
    let shared = x.exp();
    let (a, b) = (&shared + 1.0, shared.sqrt());
    assert_snapshot!(fused(&[&a, &b]), @r"
    %0 = weight f32[4] ()
    %1 = elementwise {exp(x0)} f32[4] (%0)
    %2 = elementwise {x0 + 1.0} f32[4] (%1)
    %3 = elementwise {sqrt(x0)} f32[4] (%1)
    return %2, %3
    ");
    let kept = x.exp();
    assert_snapshot!(fused(&[&(&kept + 1.0), &kept]), @r"
    %0 = weight f32[4] ()
    %1 = elementwise {exp(x0)} f32[4] (%0)
    %2 = elementwise {x0 + 1.0} f32[4] (%1)
    return %2, %1
    ");
}

#[test]
fn nodes_read_in_another_order_or_in_part_are_not_fused() {
    let x = array(&Device::cpu(), &[4, 4]);
    let y = x.exp();
    assert_snapshot!(fused(&[&(y.transpose() + 1.0)]), @r"
    %0 = weight f32[4, 4] ()
    %1 = elementwise {exp(x0)} f32[4, 4] (%0)
    %2 = elementwise {x0 + 1.0} f32[4, 4] (%1[4, 4]/[1, 4])
    return %2
    ");
    // A broadcast row has no strides in the shape of the last node of the chain.
    let added = &y + &array(x.device(), &[4]);
    assert_snapshot!(fused(&[&(added.reshape(&[16]) * 2.0)]), @r"
    %0 = weight f32[4, 4] ()
    %1 = weight f32[4] ()
    %2 = elementwise {exp(x1) + x0} f32[4, 4] (%1[4, 4]/[0, 1], %0)
    %3 = elementwise {x0 * 2.0} f32[16] (%2)
    return %3
    ");
    let counted = Array::arange(x.device(), DType::F32, 9).slice(0, 1, 9);
    assert_snapshot!(fused(&[&(counted * 2.0)]), @r"
    %0 = elementwise {f32(index)} f32[9] ()
    %1 = elementwise {x0 * 2.0} f32[8] (%0[8]+1)
    return %1
    ");
}

#[test]
fn a_reader_of_a_state_stays_before_the_following_update() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F32, &[4, 2]).unwrap();
    let slots = Array::input(&device, "slots", DType::I32, &[4]);
    let before = &state * 0.5;
    let after = state.write_rows(&array(&device, &[4, 2]), &slots);
    let result = &before + 1.0;
    assert_snapshot!(fused(&[&result, &after]), @r"
    %0 = state f32[4, 2] ()
    %1 = input slots i32[4] ()
    %2 = elementwise {x0 * 0.5} f32[4, 2] (%0)
    %3 = weight f32[4, 2] ()
    %4 = write_rows f32[4, 2] (%0, %3, %1)
    %5 = elementwise {x0 + 1.0} f32[4, 2] (%2)
    return %5, %4
    ");
}

#[test]
fn a_fused_kernel_has_at_most_eight_inputs() {
    let device = Device::cpu();
    let sum = (0..12).map(|_| array(&device, &[4])).reduce(|sum, x| sum + x).unwrap();
    let graph = fused(&[&sum]);
    let inputs: Vec<usize> = graph.nodes.iter().map(|n| n.inputs.len()).filter(|&n| n > 0).collect();
    assert_eq!(inputs, [8, 5], "{graph}");
}
