//! RMS norm.

use std::hash::{Hash, Hasher};

use refrain_kernels::rms_norm::{self, Norm};

use super::CallSite;
use crate::Array;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, spec,
};

/// (x `[.., n]`, {weight `[n]`}) → x / rms(x) · weight.
#[derive(Hash, Debug)]
pub(crate) struct Normalisation(pub Norm);

impl Operation for Normalisation {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, weight @ ..] = inputs else {
            return Err("there is no array to normalise".to_string());
        };
        let n = x.shape.last().copied().unwrap_or(0);
        let fits = n > 0
            && weight.len() == usize::from(self.0.weighted)
            && inputs.iter().all(|x| x.dtype.is_float())
            && weight.iter().all(|weight| weight.shape[..] == [n]);
        if fits {
            return Ok(vec![(*x).clone()]);
        }
        let with: String = weight.iter().map(|weight| format!(" with a weight {weight}")).collect();
        Err(format!("cannot normalise {x}{with}"))
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let ([x], weight, [out]) = spec::operands_with_optional(operands);
        let call = rms_norm::call(traits, x, weight, out, self.0.eps)?;
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let weight = self.0.weighted.then(|| x.f32(1));
            let normed = rms_norm::reference(&x.f32(0), weight.as_deref(), self.0.eps, x.columns(0));
            Values::F32(normed)
        });
    }

    fn detail(&self) -> String {
        format!(" eps {:e}", self.0.eps)
    }
}

/// x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019), computed in f32. x is floats `[..,
/// n]`, the weight floats `[n]` or none. Shape and dtype stay. Invalid for n = 0, or if shapes or dtypes do not fit.
#[track_caller]
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Array {
    let weighted = weight.is_some();
    let (call_site, norm) = (CallSite::new("rms_norm"), Normalisation(Norm { eps, weighted }));
    match weight {
        Some(weight) => call_site.apply(norm, &[x, weight]),
        None => call_site.apply(norm, &[x]),
    }
}
