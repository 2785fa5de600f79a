use insta::assert_snapshot;
use refrain::{Device, fast};

use crate::{array, null, planned};

#[test]
fn what_a_kernel_cannot_read_as_it_lies_is_copied_first() {
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

/// Merged, the batch dimensions of this order are still three: a kernel walks two.
#[test]
fn an_order_that_a_kernel_cannot_write_is_made_by_a_copy_after_it() {
    let device = null();
    let (a, b) = (array(&device, &[2, 3, 4, 5, 6]), array(&device, &[2, 3, 4, 6, 7]));
    let plan = planned(&[&a.matmul(&b).permute(&[2, 1, 0, 3, 4]).contiguous()]);
    let names: Vec<&str> = plan.steps.iter().map(|step| step.primitive.name()).collect();
    assert_eq!(names, ["matmul", "elementwise"], "{plan}");
    assert!(plan.steps.iter().all(|step| step.outputs[0].layout.count() == 840));
}

#[test]
fn nothing_is_dispatched_for_results_without_elements_nor_by_the_cpu() {
    let empty = array(&null(), &[0, 6]);
    assert_eq!(
        planned(&[&(&empty * 2.0).matmul(&array(empty.device(), &[6, 2]))]).dispatches(),
        0
    );
    let plan = planned(&[&(array(&Device::cpu(), &[2]) + 1.0)]);
    assert_eq!((plan.steps.len(), plan.dispatches()), (1, 0));
}
