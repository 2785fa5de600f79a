//! What the experts of many tokens give, weighted and added up.

use std::hash::Hasher;

use refrain_kernels::expert_sum;

use refrain::DType;
use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly};

/// (x `[T, U, N]`, weights `[T, U]`) → `[T, N]`: the sum over a token's experts of what each gives, weighted. Made by
/// [`super::rewrite`] where no product with the experts adds it up itself.
#[derive(Debug)]
pub(super) struct ExpertSum;

impl Operation for ExpertSum {
    fn name(&self) -> &'static str {
        "expert_sum"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, weights] = exactly::<2>(inputs)?;
        let fits = x.rank() == 3 && x.shape[..2] == weights.shape && [x, weights].iter().all(|a| a.dtype == DType::F32);
        if fits {
            Ok(vec![ArraySpec {
                shape: vec![x.dim(0), x.dim(2)],
                dtype: DType::F32,
            }])
        } else {
            Err(format!("weights {weights} are not those of {x}"))
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, weights, out] = operands else {
            unreachable!("two inputs and a result")
        };
        Ok(Kernels::one(expert_sum::call(traits, [x, weights, out])?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let &[_, used, columns] = x.shape(0) else {
                unreachable!("looked at before")
            };
            Values::F32(expert_sum::reference(&x.f32(0), &x.f32(1), used, columns))
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        operands[0].layout.count() as u64
    }
}
