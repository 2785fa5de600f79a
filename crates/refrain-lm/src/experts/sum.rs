//! The weighted sum over the experts of many tokens.

use std::hash::Hasher;

use refrain_kernels::expert_sum;

use refrain::DType;
use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};

/// (x `[T, U, N]`, weights `[T, U]`) → `[T, N]`: the weighted sum of the outputs of each token's experts. Made by
/// [`super::rewrite`] where no product with the experts computes the sum itself.
#[derive(Debug)]
pub(super) struct ExpertSum;

impl Operation for ExpertSum {
    fn name(&self) -> &'static str {
        "expert_sum"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, weights] = exact_inputs::<2>(inputs)?;
        let fits =
            x.rank() == 3 && x.shape[..2] == weights.shape[..] && [x, weights].iter().all(|a| a.dtype == DType::F32);
        if fits {
            Ok(vec![ArraySpec::new(&[x.dim(0), x.dim(2)], DType::F32)])
        } else {
            Err(format!("weights {weights} do not match {x}"))
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, weights, out] = operation::operands(operands);
        Ok(Kernels::one(expert_sum::call(traits, [x, weights, out])?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let &[_, used, columns] = x.shape(0) else {
                unreachable!("checked in `results`")
            };
            Values::F32(expert_sum::reference(&x.f32(0), &x.f32(1), used, columns))
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        operands[0].layout.count() as u64
    }
}
