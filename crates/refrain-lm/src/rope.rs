//! Rotary position embedding.

use std::hash::{Hash, Hasher};

use refrain_kernels::rope;

use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};
use refrain::{Array, DType};

use crate::RopeParams;

/// (x `[T, H, D]`, positions `[T]`, frequencies `[D/2]`) → rotated.
#[derive(Hash, Debug)]
pub(crate) struct Rope(pub RopeParams);

impl Operation for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, positions, frequencies] = exact_inputs(inputs)?;
        let dims = self.0.dims;
        let fits = x.rank() == 3
            && x.dtype.is_float()
            && dims.is_multiple_of(2)
            && dims <= x.dim(2)
            && positions.shape[..] == [x.dim(0)]
            && frequencies.shape[..] == [dims / 2]
            && positions.dtype == DType::I32
            && frequencies.dtype == DType::F32;
        if fits {
            return Ok(vec![(*x).clone()]);
        }
        Err(format!(
            "x {x}, positions {positions} and frequencies {frequencies} do not match {dims} rotated dimensions"
        ))
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, positions, frequencies, out] = operation::operands(operands);
        let call = rope::call(traits, x, positions, frequencies, out, &self.0)?;
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let rotated = rope::reference(&x.f32(0), &x.i32(1), &x.f32(2), x.columns(0), &self.0);
        drop(x);
        step.store(0, &Values::F32(rotated));
    }
}

/// Applies rotary position embedding (Su et al. 2021).
///
/// x floats `[T, H, D]`, positions i32 `[T]`, frequencies f32 `[dims / 2]` in radians per position → as x. Dimensions
/// from `params.dims` on are copied. The result is invalid if shapes do not match or `dims` is odd.
#[track_caller]
pub fn rope(x: &Array, positions: &Array, frequencies: &Array, params: RopeParams) -> Array {
    let [rotated] = Array::apply(Rope(params), &[x, positions, frequencies]);
    rotated
}
