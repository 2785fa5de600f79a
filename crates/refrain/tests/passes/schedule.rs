use std::hash::{Hash, Hasher};

use insta::assert_snapshot;
use refrain::operation::{
    ArraySpec, Call, CallOrder, HostStep, KernelSource, Kernels, OperandSpec, Operation, Push, Traits, Unsupported,
};
use refrain::plan::Plan;
use refrain::{Array, DType, Device, check, passes};

use crate::common::Random;
use crate::hazards::unordered;
use crate::random::program;
use crate::{array, null, planned};

/// Three calls that share one workspace.
#[derive(Clone, Hash, Debug)]
struct Thrice(u8);

impl Operation for Thrice {
    fn name(&self) -> &'static str {
        "thrice"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        Ok(vec![inputs[0].clone()])
    }

    fn lower(&self, _: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let call = Call {
            kernel: KernelSource::new("thrice", "void main() {}".into(), &[]),
            groups: [1, 1, 1],
            push: (0..3).map(|operand| Push::Address { operand, bytes: 0 }).collect(),
        };
        Ok(Kernels {
            calls: vec![call; 3],
            order: [CallOrder::Independent, CallOrder::AfterFirst, CallOrder::Sequential][usize::from(self.0)],
            workspace: Some(operands[0].clone()),
            ..Kernels::default()
        })
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.compute(|inputs| vec![inputs[0].values.clone()]);
    }
}

#[test]
fn calls_of_a_step_wait_for_each_other_as_its_order_says() {
    let x = array(&null(), &[2, 4]);
    for (number, expected) in [[vec![], vec![]], [vec![0], vec![0]], [vec![0], vec![1]]]
        .into_iter()
        .enumerate()
    {
        let [once] = Array::apply(Thrice(number as u8), &[&x]);
        let plan = planned(&[&once.softmax()]);
        let after: Vec<&[usize]> = plan.order.iter().map(|dispatch| &dispatch.after[..]).collect();
        assert_eq!(after[..3], [&[], &expected[0][..], &expected[1]], "{plan}");
        // A reader of the result waits for all calls that wrote it.
        let last: &[usize] = if number == 2 { &[2] } else { &[0, 1, 2] };
        assert_eq!(after[3], last, "{plan}");
        assert_eq!(unordered(&plan), [], "{plan}");
    }
}

fn barriers(plan: &Plan) -> Vec<bool> {
    plan.barriers_before_steps()
}

#[test]
fn a_barrier_precedes_a_step_that_reads_what_was_written_since_the_last_barrier() {
    let x = array(&Device::cpu(), &[2, 4]);
    let (a, b) = (x.softmax(), x.argmax());
    let c = a.take_along(&b.expand_dims(1));
    let d = c.softmax();
    let plan = planned(&[&a, &b, &c, &d]);
    assert_eq!(barriers(&plan), [false, false, true, true], "{plan}");
    assert_snapshot!(plan, @r"
       0 output0[0] f32[2, 4] = softmax (storage0[0] f32[2, 4])
       1 output1[0] u32[2] = argmax (storage0[0] f32[2, 4])
    ---- barrier
       2 output2[0] f32[2, 1] = take_along (output0[0] f32[2, 4], output1[0] u32[2, 1])
    ---- barrier
       3 output3[0] f32[2, 1] = softmax (output2[0] f32[2, 1])
    4 steps, 0 dispatches, 2 barriers, scratch 0 bytes, control 0 bytes
    ");
}

#[test]
fn states_are_written_after_their_readers_and_read_after_their_writers() {
    let device = Device::cpu();
    let [keys, values] = [0, 1].map(|_| Array::state(&device, DType::F32, &[4, 2]).unwrap());
    let slots = Array::input(&device, "slots", DType::I32, &[1]);
    let row = array(&device, &[1, 2]);
    let before = keys.sum(&[0]);
    let (keys, values) = (keys.write_rows(&row, &slots), values.write_rows(&row, &slots));
    let after = keys.sum(&[1]) + values.sum(&[1]);
    // sum keys, write values | write keys, sum values | sum keys | add
    let plan = planned(&[&before, &after]);
    assert_eq!(barriers(&plan), [false, false, true, false, true, true], "{plan}");
}

#[test]
fn readers_and_writers_of_shared_memory_wait_for_each_other() {
    let (x, y) = (array(&Device::cpu(), &[8, 8]), array(&Device::cpu(), &[8, 8]));
    let independent = planned(&[&x.softmax(), &y.softmax()]);
    assert_eq!(barriers(&independent), [false, false]);
    let second_writes = |place| {
        let mut plan = independent.clone();
        plan.steps[1].outputs[0].place = place;
        assert_eq!(unordered(&plan).len(), 1);
        barriers(&passes::schedule(plan))
    };
    assert_eq!(
        second_writes(independent.steps[0].outputs[0].place),
        [false, true],
        "after a write"
    );
    assert_eq!(
        second_writes(independent.steps[0].inputs[0].place),
        [false, true],
        "after a read"
    );
}

#[test]
fn scheduling_is_idempotent() {
    let outputs = program(&Device::cpu(), &mut Random::new(7));
    let plan = planned(&outputs.iter().collect::<Vec<_>>());
    assert_eq!(barriers(&passes::schedule(plan.clone())), barriers(&plan));
}

#[test]
fn a_dispatch_waits_only_for_conflicting_dispatches() {
    let device = null();
    let state = Array::state(&device, DType::F32, &[1, 1 << 20]).unwrap();
    let sum = state.sum(&[1]);
    let first_row = Array::from_slice(&device, &[0i32], &[1]);
    let updated = state.write_rows(&array(&device, &[1, 1 << 20]), &first_row);
    let plan = planned(&[&sum, &updated]);
    let dispatches: Vec<(usize, usize)> = plan
        .order
        .iter()
        .map(|dispatch| (dispatch.step, dispatch.call))
        .collect();
    assert_eq!(dispatches, [(0, 0), (0, 1), (1, 0)], "{plan}");
    // The parts of the sum read the state, which is updated afterwards; the dispatch that adds them up does not.
    let after: Vec<&[usize]> = plan.order.iter().map(|dispatch| &dispatch.after[..]).collect();
    assert_eq!(after, [&[][..], &[0], &[0]], "{plan}");
    assert_eq!(plan.barriers_before(), [false, true, false], "{plan}");
    assert_eq!(check::prove(&plan).unordered, []);
}
