//! What lowering knows of MLX's programs: graph passes that bring them into the form that the kernels for inference
//! expect ([`refrain::rewrite`]).
//!
//! Operations mark such programs and bring the passes with them. [`rounded`] marks the result of a product in half
//! precision, [`as_rounded`] what has to be rounded, [`same_position`] the position of a token that attends to a cache,
//! [`partitioned`] a partition.

mod caches;
mod partition;
mod sigmoid;
mod widen;

use std::hash::{Hash, Hasher};

use refrain::operation::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, operands,
};
use refrain::rewrite::{Rewrite, RewriteStage};
use refrain::{Array, DType};
use refrain_kernels::elementwise::{self, Expression};

pub(crate) use partition::partitioned;

/// (x f32) → x in half precision.
#[derive(Hash, Debug)]
struct Rounded(DType);

impl Operation for Rounded {
    fn name(&self) -> &'static str {
        "rounded"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        if x.dtype != DType::F32 {
            return Err(format!("{x} is not f32"));
        }
        Ok(vec![ArraySpec {
            dtype: self.0,
            ..(*x).clone()
        }])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        converted(traits, operands)
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::F32(x.f32(0)));
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::BeforeProducts,
            run: widen::run,
        }]
    }
}

/// (x in half precision) → its numbers in f32. They are rounded, even where a program could go on without that.
#[derive(Hash, Debug)]
struct AsRounded;

impl Operation for AsRounded {
    fn name(&self) -> &'static str {
        AS_ROUNDED
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        Ok(vec![ArraySpec::new(&x.shape, DType::F32)])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        converted(traits, operands)
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::F32(x.f32(0)));
    }
}

/// The name of [`AsRounded`].
const AS_ROUNDED: &str = "as_rounded";

/// (position, an i32 without dimensions) → i32 `[T]`, T times the same.
#[derive(Hash, Debug)]
struct SamePosition {
    tokens: usize,
}

impl Operation for SamePosition {
    fn name(&self) -> &'static str {
        "same_position"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [position] = exact_inputs(inputs)?;
        if position.dtype != DType::I32 || position.rank() != 0 {
            return Err(format!("{position} is no position"));
        }
        Ok(vec![ArraySpec::new(&[self.tokens], DType::I32)])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        converted(traits, operands)
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::I32(vec![x.i32(0)[0]; self.tokens]));
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::BeforeProducts,
            run: caches::run,
        }]
    }
}

/// The kernel that converts the first operand, broadcast, to the dtype of the second.
fn converted(traits: &Traits, all: &[OperandSpec]) -> Result<Kernels, Unsupported> {
    let [x, out] = operands(all);
    let layout = x.layout.broadcast(&out.layout.shape).expect("checked by `results`");
    let x = OperandSpec { layout, ..x.clone() };
    let call = elementwise::call(traits, &Expression::cast(x.dtype, out.dtype), &[&x, out])?;
    Ok(Kernels::one(call))
}

/// Whether this is a float of 16 bits.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// x (f32), rounded to `dtype`. Where a program goes on with the result, lowering may leave the rounding out.
pub(crate) fn rounded(x: &Array, dtype: DType) -> Array {
    if x.dtype() != DType::F32 || !is_half(dtype) {
        return x.astype(dtype);
    }
    let [rounded] = Array::apply(Rounded(dtype), &[x]);
    rounded
}

/// x in f32. If it has half precision, its numbers are rounded to that, whatever computes it.
pub(crate) fn as_rounded(x: &Array) -> Array {
    if !is_half(x.dtype()) {
        return x.astype(DType::F32);
    }
    let [rounded] = Array::apply(AsRounded, &[x]);
    rounded
}

/// The positions of `tokens` tokens that are all at `position`, an i32 without dimensions.
pub(crate) fn same_position(position: &Array, tokens: usize) -> Array {
    let [positions] = Array::apply(SamePosition { tokens }, &[position]);
    positions
}
