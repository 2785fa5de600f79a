//! Operations with several results, implemented by the public interface.

use std::hash::{Hash, Hasher};

use refrain::operation::glsl::{self, AccessorKind};
use refrain::operation::{
    ArraySpec, Call, HostArray, HostStep, KernelSource, Kernels, OperandSpec, Operation, Push, Traits, Unsupported,
    Values,
};
use refrain::{Array, DType, Device, Error, Function, eval};

use crate::common::{assert_silent, plain, vulkan};

/// (totals, x), both f32 of one shape → totals + x, whether x exceeds the old total (u32), and the totals, which become
/// the sums.
#[derive(Debug)]
struct AddUp;

const SHADER: &str = "
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Arguments { totals_ref totals; x_ref x; sums_ref sums; more_ref more; uint count; } push;
void main() {
    uint i = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (i >= push.count) return;
    float total = load_totals(push.totals, i);
    float x = load_x(push.x, i);
    store_more(push.more, i, x > total ? 1u : 0u);
    store_totals(push.totals, i, total + x);
    store_sums(push.sums, i, total + x);
}
";

impl Operation for AddUp {
    fn name(&self) -> &'static str {
        "add_up"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        match inputs {
            [totals, x] if totals == x && x.dtype == DType::F32 => Ok([DType::F32, DType::U32]
                .map(|dtype| ArraySpec { dtype, ..(*x).clone() })
                .to_vec()),
            _ => Err(format!("totals and what is added are f32 of one shape, not {inputs:?}")),
        }
    }

    fn updates(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let op = self.name();
        let lies_well = |operand: &OperandSpec| operand.layout.is_contiguous();
        if let Some(operand) = operands.iter().position(|operand| !lies_well(operand)) {
            return Err(Unsupported::NeedsContiguous { op, operand });
        }
        let mut source = glsl::head(traits);
        let names = [
            ("totals", AccessorKind::Write),
            ("x", AccessorKind::Read),
            ("sums", AccessorKind::Write),
            ("more", AccessorKind::Write),
        ];
        for ((name, access), operand) in names.into_iter().zip(operands) {
            source += &glsl::accessor(traits, name, operand.dtype, access);
        }
        let workgroup = traits.workgroup(64);
        let count = operands[1].layout.count() as u32;
        let mut push: Vec<Push> = (0..).zip(operands).map(|(n, operand)| operand.address(n)).collect();
        push.push(Push::U32(count));
        let kernel = KernelSource::new(&format!("own.{op}"), source + SHADER, &[(0, workgroup)]);
        Ok(Kernels {
            calls: vec![Call {
                kernel,
                groups: [count.div_ceil(workgroup), 1, 1],
                push,
            }],
            ..Kernels::default()
        })
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.compute(|inputs| {
            let [totals, x]: &mut [HostArray; 2] = inputs.try_into().expect("`results` accepts two inputs");
            let pairs = || totals.values.f32().iter().zip(x.values.f32());
            let sums: Vec<f32> = pairs().map(|(total, x)| total + x).collect();
            let more: Vec<u32> = pairs().map(|(total, x)| u32::from(x > total)).collect();
            totals.values = Values::F32(sums.clone());
            vec![Values::F32(sums), Values::U32(more)]
        });
    }
}

fn devices() -> [Device; 3] {
    [Device::cpu(), vulkan().clone(), plain().clone()]
}

fn two(device: &Device, x: [f32; 2]) -> Array {
    Array::from_slice(device, &x, &[2])
}

#[test]
fn results_can_be_read_one_after_the_other() {
    for device in devices() {
        let mut totals = Array::state(&device, DType::F32, &[2]).expect("a small state");
        for (x, sums, more) in [
            ([1.0f32, -2.0], [1.0f32, -2.0], [1u32, 0]),
            ([5.0, -2.5], [6.0, -4.5], [1, 0]),
        ] {
            let [sum, larger, next] = Array::apply(AddUp, &[&totals, &two(&device, x)]);
            assert_eq!(larger.to_vec::<u32>().expect("evaluates"), more);
            assert_eq!(next.to_vec::<f32>().expect("evaluates"), sums);
            assert_eq!(sum.to_vec::<f32>().expect("was evaluated with the others"), sums);
            totals = next;
        }
    }
    assert_silent();
}

#[test]
fn results_that_are_still_referred_to_are_computed_with_the_others() {
    for device in devices() {
        let totals = Array::state(&device, DType::F32, &[2]).expect("a small state");
        let [sums, more, next] = Array::apply(AddUp, &[&totals, &two(&device, [1.0, 2.0])]);
        let [_, _, last] = Array::apply(AddUp, &[&next, &(&sums * 2.0)]);
        assert_eq!(last.to_vec::<f32>().expect("evaluates"), [3.0, 6.0]);
        assert_eq!(sums.to_vec::<f32>().expect("evaluated before"), [1.0, 2.0]);
        assert_eq!(more.to_vec::<u32>().expect("evaluated before"), [1, 1]);
        let stale = next.to_vec::<f32>().expect_err("that version is gone");
        assert!(matches!(stale, Error::StaleState { .. }), "{stale}");
    }
    assert_silent();
}

#[test]
fn using_a_result_that_was_dropped_is_an_error() {
    let device = Device::cpu();
    let totals = Array::state(&device, DType::F32, &[2]).expect("a small state");
    let [sums, _, next] = Array::apply(AddUp, &[&totals, &two(&device, [1.0, 2.0])]);
    let kept = &sums * 2.0;
    let all = &kept + &next;
    drop((sums, next));
    eval(&[&all]).expect("evaluates");
    let lost = kept.to_vec::<f32>().expect_err("its source was not kept");
    assert!(matches!(lost, Error::StaleState { .. }), "{lost}");
}

#[test]
fn functions_return_several_results_and_update_states() {
    for device in devices() {
        let totals = Array::state(&device, DType::F32, &[2]).expect("a small state");
        let x = Array::input(&device, "x", DType::F32, &[2]);
        let [sums, more, next] = Array::apply(AddUp, &[&totals, &x]);
        let step = Function::trace(&[&more, &next, &(&sums + 1.0)]).expect("traces");
        for (x, totals, more) in [([1.0, -1.0], [1.0, -1.0], [1, 0]), ([0.5, 2.0], [1.5, 1.0], [0, 1])] {
            let results = step.call(&[("x", &two(&device, x))]).expect("runs");
            assert_eq!(results[0].to_vec::<u32>().expect("reads"), more);
            assert_eq!(results[1].to_vec::<f32>().expect("reads"), totals);
            assert_eq!(results[2].to_vec::<f32>().expect("reads"), totals.map(|x| x + 1.0));
        }
        assert_eq!(totals.to_vec::<f32>().expect("reads"), [1.5, 1.0]);
    }
    assert_silent();
}

#[test]
fn several_results_can_be_replayed() {
    for device in devices() {
        for executor in device.executors() {
            let totals = Array::state(&device, DType::F32, &[2]).expect("a small state");
            let [sums, more, next] = Array::apply(AddUp, &[&totals, &two(&device, [1.0, 2.0])]);
            let [again, _, next] = Array::apply(AddUp, &[&next, &sums]);
            let step = Function::trace(&[&sums, &more, &again, &next]).expect("traces");
            let tape = step.tape(*executor).expect("records");
            for (sums, more, again) in [
                ([1.0f32, 2.0], [1u32, 1], [2.0f32, 4.0]),
                ([3.0, 6.0], [0, 0], [6.0, 12.0]),
                ([7.0, 14.0], [0, 0], [14.0, 28.0]),
            ] {
                tape.play(&[], 1).expect("runs");
                assert_eq!(step.read::<f32>(0).expect("reads"), sums);
                assert_eq!(step.read::<u32>(1).expect("reads"), more);
                assert_eq!(step.read::<f32>(2).expect("reads"), again);
                assert_eq!(step.read::<f32>(3).expect("reads"), again);
            }
        }
    }
    assert_silent();
}

#[test]
fn expecting_another_number_of_results_is_an_error() {
    let device = Device::cpu();
    let totals = Array::state(&device, DType::F32, &[2]).expect("a small state");
    let [sums, _] = Array::apply(AddUp, &[&totals, &two(&device, [1.0, 2.0])]);
    let error = sums.eval().expect_err("three are not two").to_string();
    assert!(
        error.contains("3 results") && error.contains("2 are expected"),
        "{error}"
    );
    let [sums, more, next] = Array::apply(AddUp, &[&two(&device, [1.0, 2.0]), &two(&device, [1.0, 2.0])]);
    for result in [sums, more, next] {
        let error = result.eval().expect_err("no state").to_string();
        assert!(error.contains("whole state"), "{error}");
    }
}

/// x · `factor`, which is part of the shader's source.
#[derive(Debug)]
struct Times {
    factor: f32,
}

impl Operation for Times {
    fn name(&self) -> &'static str {
        "times"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.factor.to_bits().hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        Ok(inputs.iter().map(|x| (*x).clone()).collect())
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let mut source = glsl::head(traits);
        for ((name, access), operand) in [("x", AccessorKind::Read), ("y", AccessorKind::Write)]
            .into_iter()
            .zip(operands)
        {
            source += &glsl::accessor(traits, name, operand.dtype, access);
        }
        source += "layout(local_size_x_id = 0) in;\nlayout(push_constant, scalar) uniform Arguments { x_ref x; y_ref y; } push;\n";
        let (at, factor) = ("gl_LocalInvocationIndex", self.factor);
        source += &format!("void main() {{ store_y(push.y, {at}, load_x(push.x, {at}) * {factor:?}); }}\n");
        let push = (0..).zip(operands).map(|(number, operand)| operand.address(number));
        Ok(Kernels::one(Call {
            kernel: KernelSource::new("times", source, &[(0, operands[0].layout.count() as u32)]),
            groups: [1, 1, 1],
            push: push.collect(),
        }))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.compute(|inputs| {
            let products = inputs[0].values.f32().iter().map(|x| x * self.factor);
            vec![Values::F32(products.collect())]
        });
    }
}

#[test]
fn kernels_are_distinguished_by_their_source_not_their_name() {
    for device in devices() {
        let x = two(&device, [1.0, 2.0]);
        let [doubled] = Array::apply(Times { factor: 2.0 }, &[&x]);
        let [tripled] = Array::apply(Times { factor: 3.0 }, &[&doubled]);
        assert_eq!(tripled.to_vec::<f32>().expect("evaluates"), [6.0, 12.0]);
    }
    assert_silent();
}
