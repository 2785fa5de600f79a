//! The weighted sum over the experts of many tokens.

use std::hash::Hasher;

use refrain_kernels::expert_sum;

use refrain::DType;
use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};

/// (x `[T, U, N]`, weights `[T, U]`) → `[T, N]`: the weighted sum of the outputs of each token's experts. With `scored`,
/// (x, scores `[T, E]`, experts `[T, U]`), and the weights are the softmax over the scores of the token's experts. Made by
/// [`super::rewrite`] where no product with the experts computes the sum itself.
#[derive(Debug)]
pub(super) struct ExpertSum {
    pub scored: bool,
}

impl Operation for ExpertSum {
    fn name(&self) -> &'static str {
        "expert_sum"
    }

    fn key(&self, state: &mut dyn Hasher) {
        state.write_u8(self.scored.into());
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let (x, weights, chosen) = if self.scored {
            let [x, scores, experts] = exact_inputs::<3>(inputs)?;
            (x, scores, experts)
        } else {
            let [x, weights] = exact_inputs::<2>(inputs)?;
            (x, weights, weights)
        };
        let are_floats = [x, weights].iter().all(|a| a.dtype == DType::F32);
        if x.rank() == 3 && x.shape[..2] == chosen.shape[..] && are_floats {
            Ok(vec![ArraySpec::new(&[x.dim(0), x.dim(2)], DType::F32)])
        } else {
            Err(format!("weights {weights} do not match {x}"))
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let call = if self.scored {
            let [x, scores, experts, out] = operation::operands(operands);
            expert_sum::call(traits, [x, scores, out], Some(experts))?
        } else {
            let [x, weights, out] = operation::operands(operands);
            expert_sum::call(traits, [x, weights, out], None)?
        };
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let &[_, used, columns] = x.shape(0) else {
                unreachable!("checked in `results`")
            };
            let given = x.f32(1);
            let computed = (self.scored).then(|| expert_sum::reference_weights(&given, &x.u32(2), used, x.shape(1)[1]));
            let weights = computed.as_deref().unwrap_or(&given);
            Values::F32(expert_sum::reference(&x.f32(0), weights, used, columns))
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        operands[0].layout.count() as u64
    }
}
