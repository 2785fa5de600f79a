//! Composites: arrays that are composed of others when a program is lowered.

mod common;

use std::hash::Hasher;

use common::vulkan;
use refrain::{Array, Composite, DType, Device, Function, eval, eval_referenced};

/// What a [`Sample`] is composed of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// x · wᵀ + integer, with another composite inside.
    Sum,
    /// An array of another shape than it says.
    OtherShape,
    /// An array that is not among its inputs.
    Foreign,
    /// A placeholder that is not among its inputs.
    Placeholder,
    /// Shapes that do not fit.
    Invalid,
}

#[derive(Debug)]
struct Sample(Kind);

impl Composite for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn key(&self, state: &mut dyn Hasher) {
        state.write_u8(self.0 as u8);
    }

    fn compose(&self, inputs: &[Array], integer: Option<&Array>) -> Array {
        let (x, w) = (&inputs[0], &inputs[1]);
        let product = x.matmul(&w.transpose());
        match self.0 {
            Kind::Sum => {
                let shifted = product + integer.expect("there is one").astype(DType::F32);
                Array::composed(Doubled, &[&shifted], Some(3), shifted.shape(), DType::F32)
            }
            Kind::OtherShape => product.transpose(),
            Kind::Foreign => product + Array::from_slice(x.device(), &[1.0f32], &[1]),
            Kind::Placeholder => product + Array::input(x.device(), "y", DType::F32, &[1]),
            Kind::Invalid => x.matmul(w),
        }
    }
}

/// 2 x + integer.
#[derive(Debug)]
struct Doubled;

impl Composite for Doubled {
    fn name(&self) -> &'static str {
        "doubled"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn compose(&self, inputs: &[Array], integer: Option<&Array>) -> Array {
        &inputs[0] * 2.0 + integer.expect("there is one").astype(DType::F32)
    }
}

fn operands(device: &Device) -> [Array; 2] {
    [
        Array::from_slice(device, &[1.0f32, 2.0, 3.0], &[1, 3]),
        Array::from_slice(device, &[1.0f32, 0.0, 0.0, 0.0, 1.0, 1.0], &[2, 3]),
    ]
}

fn sample(kind: Kind, [x, w]: [&Array; 2], integer: i32) -> Array {
    Array::composed(Sample(kind), &[x, w], Some(integer), &[1, 2], DType::F32)
}

#[test]
fn a_composite_is_composed_when_its_program_is_lowered() {
    for device in [Device::cpu(), vulkan().clone()] {
        let operands = operands(&device);
        for step in 0..6 {
            // A view of a lazy array is an input, and the result is read by another operation.
            let x = (&operands[0] + step as f32).reshape(&[1, 3]);
            let result = sample(Kind::Sum, [&x, &operands[1]], step) - 1.0;
            let s = step as f32;
            let expected = [1.0 + s, 5.0 + 2.0 * s].map(|product| 2.0 * (product + s) + 3.0 - 1.0);
            assert_eq!(result.to_vec::<f32>().expect("computes"), expected);
        }
    }
}

/// 2 x and x + 1.
#[derive(Debug)]
struct Both;

impl Composite for Both {
    fn name(&self) -> &'static str {
        "both"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn compose(&self, inputs: &[Array], integer: Option<&Array>) -> Array {
        self.compose_results(inputs, integer).swap_remove(0)
    }

    fn compose_results(&self, inputs: &[Array], _integer: Option<&Array>) -> Vec<Array> {
        vec![&inputs[0] * 2.0, &inputs[0] + 1.0]
    }
}

#[test]
fn several_results_are_computed_together_where_they_are_referred_to() {
    for device in [Device::cpu(), vulkan().clone()] {
        let x = Array::from_slice(&device, &[1.0f32, 2.0, 3.0], &[3]);
        let both = || Array::composed_results(Both, &[&x], &[(&[3], DType::F32), (&[3], DType::F32)]);
        let results = both();
        eval(&[&results[0]]).expect("computes");
        assert!(results[1].is_evaluated());
        for (result, expected) in results.iter().zip([[2.0, 4.0, 6.0], [2.0, 3.0, 4.0]]) {
            assert_eq!(result.to_vec::<f32>().expect("reads"), expected);
        }
        // Only the second is still referred to: the first is part of the sum's step.
        let [first, second] = both().try_into().expect("two results");
        let sum = &first + &x;
        drop(first);
        eval_referenced(&[&sum]).expect("computes");
        assert!(second.is_evaluated());
        assert_eq!(sum.to_vec::<f32>().expect("reads"), [3.0, 6.0, 9.0]);
        let explained = device.explain();
        assert!(explained.contains("in 2 steps"), "{explained}");
    }
    let missing = Array::composed_results(Both, &[], &[(&[3], DType::F32), (&[3], DType::F32)]);
    assert!(missing.iter().all(|result| result.error().is_some()));
}

#[test]
fn a_repeated_composite_is_lowered_twice() {
    let device = Device::cpu();
    let [x, w] = operands(&device);
    let before = device.program_counts().lowerings;
    for step in 0..5 {
        let result = sample(Kind::Sum, [&x, &w], step);
        let s = step as f32;
        assert_eq!(
            result.to_vec::<f32>().expect("computes"),
            [2.0 * (1.0 + s) + 3.0, 2.0 * (5.0 + s) + 3.0]
        );
    }
    assert_eq!(device.program_counts().lowerings - before, 2, "{}", device.explain());
    // Others of its type are other programs.
    let other = sample(Kind::OtherShape, [&x, &w], 0);
    assert!(other.eval().is_err());
}

#[test]
fn a_composite_is_part_of_a_function() {
    let device = Device::cpu();
    let [_, w] = operands(&device);
    let x = Array::input(&device, "x", DType::F32, &[1, 3]);
    let function = Function::trace(&[&sample(Kind::Sum, [&x, &w], 7)]).expect("lowers");
    for first in [0.0f32, 10.0] {
        let x = Array::from_slice(&device, &[first, 2.0, 3.0], &[1, 3]);
        let results = function.call(&[("x", &x)]).expect("computes");
        assert_eq!(
            results[0].to_vec::<f32>().expect("reads"),
            [2.0 * (first + 7.0) + 3.0, 2.0 * 12.0 + 3.0]
        );
    }
}

#[test]
fn a_composite_that_breaks_its_word_is_an_error() {
    let device = Device::cpu();
    let [x, w] = operands(&device);
    for (kind, expected) in [
        (Kind::OtherShape, "sample is composed of f32[2, 1], not of f32[1, 2]"),
        (
            Kind::Foreign,
            "sample is composed of arrays that are not among its inputs",
        ),
        (
            Kind::Placeholder,
            "sample is composed of arrays that are not among its inputs",
        ),
        (Kind::Invalid, "inner dimensions differ"),
    ] {
        let error = eval(&[&sample(kind, [&x, &w], 0)]).expect_err("it does not compose");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let nothing = Array::composed(Doubled, &[], None, &[1], DType::F32);
    assert!(nothing.error().expect("no inputs").to_string().contains("doubled"));
    let invalid = x.matmul(&x);
    let passed_on = Array::composed(Doubled, &[&invalid], None, &[1], DType::F32);
    assert!(passed_on.error().expect("an input").to_string().contains("matmul"));
}
