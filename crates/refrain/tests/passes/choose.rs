use insta::assert_snapshot;
use refrain::{Device, fast};

use crate::{array, null, planned};

#[test]
fn an_operand_in_an_unsupported_layout_is_copied_first() {
    let x = array(&null(), &[4, 6]);
    assert_snapshot!(planned(&[&fast::rms_norm(&x, None, 1e-6)]), @r"
       0 output0[0] f32[4, 6] = rms_norm eps 1e-6 (storage0[0] f32[4, 6])
           rms_norm.lane_value=float.f32.f32 [1, 1, 1]
    1 steps, 1 dispatches, 0 barriers, scratch 0 bytes, control 0 bytes
    ");
    assert_snapshot!(planned(&[&fast::rms_norm(&x.transpose(), None, 1e-6)]), @r"
       0 scratch[0] f32[6, 4] = elementwise {x0} (storage0[0] f32[6, 4]/[1, 6])
           elementwise.f32.f32 [1, 1, 1]
    ---- barrier
       1 output0[0] f32[6, 4] = rms_norm eps 1e-6 (scratch[0] f32[6, 4])
           rms_norm.lane_value=float.f32.f32 [1, 1, 1]
    2 steps, 2 dispatches, 1 barriers, scratch 256 bytes, control 0 bytes
    ");
}

/// Even merged, this order has three batch dimensions; kernels support two.
#[test]
fn an_output_layout_that_the_kernel_cannot_write_is_made_by_a_copy() {
    let device = null();
    let (a, b) = (array(&device, &[2, 3, 4, 5, 6]), array(&device, &[2, 3, 4, 6, 7]));
    let plan = planned(&[&a.matmul(&b).permute(&[2, 1, 0, 3, 4]).contiguous()]);
    let names: Vec<&str> = plan.steps.iter().map(|step| step.primitive.name()).collect();
    assert_eq!(names, ["matmul", "elementwise"], "{plan}");
    assert!(plan.steps.iter().all(|step| step.outputs[0].layout.count() == 840));
}

#[test]
fn empty_results_and_the_cpu_executor_have_no_dispatches() {
    let empty = array(&null(), &[0, 6]);
    assert_eq!(
        planned(&[&(&empty * 2.0).matmul(&array(empty.device(), &[6, 2]))]).dispatches(),
        0
    );
    let plan = planned(&[&(array(&Device::cpu(), &[2]) + 1.0)]);
    assert_eq!((plan.steps.len(), plan.dispatches()), (1, 0));
}
