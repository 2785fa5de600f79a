use refrain::plan::{Plan, Step};
use refrain::{Array, DType, Device, passes};

use crate::{array, canonical, planned};

fn names(plan: &Plan) -> String {
    let steps = plan.steps.iter().zip(plan.barriers_before_steps());
    let name = |(step, barrier): (&Step, bool)| format!("{}{}", if barrier { "| " } else { "" }, step.primitive.name());
    steps.map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn independent_branches_share_levels() {
    let x = array(&Device::cpu(), &[4, 4]);
    let branches: Vec<Array> = (0..2).map(|_| x.softmax().softmax().sum(&[0])).collect();
    let plan = planned(&branches.iter().collect::<Vec<_>>());
    // No step reuses memory that another step of its level still reads.
    assert_eq!(names(&plan), "softmax softmax | softmax softmax | reduce reduce");
    assert_eq!(plan.scratch_bytes, 4 * 256);
}

/// Results of early steps stay in memory, so the number of steps considered at a time is limited.
#[test]
fn a_level_takes_a_bounded_part_of_the_program() {
    let x = array(&Device::cpu(), &[4, 4]);
    let branches: Vec<Array> = (0..200).map(|_| x.softmax().sum(&[0])).collect();
    let plan = planned(&branches.iter().collect::<Vec<_>>());
    assert!(plan.scratch_bytes <= 32 * 256, "{} bytes", plan.scratch_bytes);
    assert!(plan.barriers() < 40, "{} barriers", plan.barriers());
}

#[test]
fn an_update_comes_after_the_readers_of_the_old_version() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F32, &[4, 2]).unwrap();
    let slots = Array::input(&device, "slots", DType::I32, &[4]);
    let late = state.softmax().softmax();
    let read = late.matmul(&state.transpose());
    let after = state.write_rows(&array(&device, &[4, 2]), &slots);
    let plan = planned(&[&read, &after.sum(&[0])]);
    assert_eq!(names(&plan), "softmax | softmax | matmul | write_rows | reduce");
}

#[test]
fn levels_increase_along_every_edge() {
    let x = array(&Device::cpu(), &[4, 4]);
    let y = x.softmax();
    let graph = canonical(&[&(y.matmul(&y.sum(&[0]).expand_dims(1)) + y.argmax().astype(DType::F32))]);
    let ordered = passes::order(passes::choose(graph, &Device::cpu()).unwrap());
    for (node, level) in ordered.graph.nodes.iter().zip(&ordered.levels) {
        assert!(
            node.inputs.iter().all(|edge| ordered.levels[edge.node] < *level),
            "{}",
            ordered.graph
        );
    }
}
