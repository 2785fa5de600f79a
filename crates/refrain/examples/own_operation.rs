//! A custom operation with its own shader: a moving average in a state on the device.
//!
//! ```sh
//! cargo run -p refrain --example own_operation
//! ```

use std::hash::{Hash, Hasher};

use refrain::operation::glsl::{self, AccessorKind};
use refrain::operation::{
    ArraySpec, Call, HostArray, HostStep, KernelSource, Kernels, OperandSpec, Operation, Push, Traits, Unsupported,
    Values,
};
use refrain::{Array, DType, Device, Error};

/// (averages, x), both f32 of one shape → `keep` · averages + (1 − keep) · x; the averages are updated to the same.
#[derive(Clone, Copy, Debug)]
struct MovingAverage {
    keep: f32,
}

/// The shader, after the generated accessors of averages, x and result.
const SHADER: &str = "
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Arguments { averages_ref averages; x_ref x; y_ref y; uint count; float keep; } push;
void main() {
    uint i = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (i >= push.count) return;
    float average = mix(load_x(push.x, i), load_averages(push.averages, i), push.keep);
    store_averages(push.averages, i, average);
    store_y(push.y, i, average);
}
";

impl Operation for MovingAverage {
    fn name(&self) -> &'static str {
        "moving_average"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.keep.to_bits().hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        match inputs {
            [averages, x] if averages == x && x.dtype == DType::F32 => Ok(vec![(*x).clone()]),
            _ => Err(format!(
                "averages and what is averaged are f32 of one shape, not {inputs:?}"
            )),
        }
    }

    fn updates(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let op = self.name();
        if let Some(operand) = operands.iter().position(|operand| !operand.layout.is_contiguous()) {
            return Err(Unsupported::NeedsContiguous { op, operand });
        }
        let mut source = glsl::head(traits);
        for (name, access) in [
            ("averages", AccessorKind::Write),
            ("x", AccessorKind::Read),
            ("y", AccessorKind::Write),
        ] {
            source += &glsl::accessor(traits, name, DType::F32, access);
        }
        let workgroup = traits.workgroup(256);
        let count = operands[1].layout.count();
        let groups = count.div_ceil(workgroup as usize);
        if groups > 65_535 {
            let what = format!("{count} elements are more than one dispatch takes");
            return Err(Unsupported::Size { op, what });
        }
        let mut push: Vec<Push> = (0..)
            .zip(operands)
            .map(|(number, operand)| operand.address(number))
            .collect();
        push.extend([Push::U32(count as u32), Push::F32(self.keep)]);
        let kernel = KernelSource::new(&format!("own.{op}"), source + SHADER, &[(0, workgroup)]);
        Ok(Kernels {
            calls: vec![Call {
                kernel,
                groups: [groups as u32, 1, 1],
                push,
            }],
            ..Kernels::default()
        })
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.compute(|inputs| {
            let [averages, x]: &mut [HostArray; 2] = inputs.try_into().expect("`results` accepts two inputs");
            let pairs = averages.values.f32().iter().zip(x.values.f32());
            let new = pairs.map(|(average, x)| x * (1.0 - self.keep) + average * self.keep);
            averages.values = Values::F32(new.collect());
            vec![averages.values.clone()]
        });
    }
}

fn main() -> Result<(), Error> {
    run(&Device::cpu())
}

/// Averages on `device`, checks the results and prints them.
///
/// # Errors
/// Returns errors of the evaluation.
pub fn run(device: &Device) -> Result<(), Error> {
    let mut averages = Array::state(device, DType::F32, &[2])?;
    for x in [[1.0f32, 10.0], [2.0, 20.0], [3.0, 30.0]] {
        let x = Array::from_slice(device, &x, &[2]);
        let [seen, next] = Array::apply(MovingAverage { keep: 0.5 }, &[&averages, &(&x * 2.0)]);
        println!("{:?}", seen.to_vec::<f32>()?);
        averages = next;
    }
    assert_eq!(averages.to_vec::<f32>()?, [4.25, 42.5]);
    // The same operation with another number is another program.
    let one = Array::from_slice(device, &[4.25f32, 0.0], &[2]);
    let [seen, _] = Array::apply(MovingAverage { keep: 0.0 }, &[&averages, &one]);
    assert_eq!(seen.to_vec::<f32>()?, [4.25, 0.0]);
    let [wrong, _] = Array::apply(MovingAverage { keep: 0.5 }, &[&one, &one.reshape(&[2, 1])]);
    println!("{}", wrong.eval().expect_err("the shapes do not fit"));
    Ok(())
}
