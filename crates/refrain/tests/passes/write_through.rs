use insta::assert_snapshot;
use refrain::graph::Graph;
use refrain::{Array, Device, passes};

use crate::{array, fused, null, planned};

fn written(outputs: &[&Array]) -> Graph {
    passes::write_through(fused(outputs))
}

/// Transposed to heads first, as attention reads them.
fn heads(device: &Device) -> Array {
    let (x, w) = (array(device, &[5, 8]), array(device, &[6, 8]));
    x.matmul(&w.transpose()).reshape(&[5, 2, 3]).permute(&[1, 0, 2])
}

#[test]
fn a_matmul_writes_the_layout_of_the_copy_after_it() {
    assert_snapshot!(written(&[&heads(&Device::cpu()).contiguous().softmax()]), @r"
    %0 = weight f32[5, 8] ()
    %1 = weight f32[6, 8] ()
    %2 = matmul f32[1, 2, 5, 3] (%0[1, 2, 5, 8]/[40, 0, 8, 1], %1[1, 2, 8, 3]/[0, 24, 1, 8])
    %3 = softmax f32[2, 5, 3] (%2)
    return %3
    ");
}

#[test]
fn attention_needs_no_copies_after_matmuls() {
    let q = heads(&null());
    let attn_out = q.matmul(&q.swap_axes(-1, -2)).softmax().matmul(&q.contiguous());
    let back = attn_out
        .permute(&[1, 0, 2])
        .reshape(&[5, 6])
        .matmul(&array(q.device(), &[6, 8]));
    let plan = planned(&[&back]);
    let copies = plan
        .steps
        .iter()
        .filter(|step| step.primitive.name() == "elementwise")
        .count();
    assert_eq!(copies, 1, "only q is copied, because two nodes use it: {plan}");
}

#[test]
fn a_matmul_with_other_readers_keeps_its_layout() {
    let product = array(&Device::cpu(), &[4, 8]).matmul(&array(&Device::cpu(), &[8, 4]));
    assert_snapshot!(written(&[&product.transpose().contiguous(), &product.sum(&[0])]), @r"
    %0 = weight f32[4, 8] ()
    %1 = weight f32[8, 4] ()
    %2 = matmul f32[4, 4] (%0, %1)
    %3 = elementwise {x0} f32[4, 4] (%2[4, 4]/[1, 4])
    %4 = reduce Sum over 1 f32[4] (%2[4, 4]/[1, 4])
    return %3, %4
    ");
}

#[test]
fn copies_of_a_part_or_a_broadcast_are_kept() {
    let product = array(&Device::cpu(), &[4, 8]).matmul(&array(&Device::cpu(), &[8, 4]));
    let part = written(&[&product.slice(1, 0, 2).contiguous()]);
    let repeated = written(&[&product.expand_dims(0).broadcast_to(&[2, 4, 4]).contiguous()]);
    let first = written(&[&product.slice(0, 0, 2).contiguous()]);
    for graph in [part, repeated, first] {
        assert_eq!(graph.nodes.len(), 4, "{graph}");
    }
}

#[test]
fn split_rows_and_columns_become_a_batch_of_smaller_matrices() {
    let device = Device::cpu();
    // [B · T, H · D] → [B, H, T, D]
    let product = array(&device, &[6, 4]).matmul(&array(&device, &[4, 10]));
    let heads = product.reshape(&[2, 3, 2, 5]).permute(&[0, 2, 1, 3]);
    assert_snapshot!(written(&[&heads.contiguous()]), @r"
    %0 = weight f32[6, 4] ()
    %1 = weight f32[4, 10] ()
    %2 = matmul f32[2, 2, 3, 5] (%0[2, 2, 3, 4]/[12, 0, 4, 1], %1[2, 2, 4, 5]/[0, 5, 10, 1])
    return %2
    ");
    // Kernels do not support three parts of one dimension.
    let product = array(&device, &[12, 4]).matmul(&array(&device, &[4, 3]));
    let turned = product.reshape(&[2, 2, 3, 3]).permute(&[2, 1, 0, 3]);
    assert_eq!(written(&[&turned.contiguous()]).nodes.len(), 4);
}
