//! Matrix products with quantised matrices.

use std::hash::{Hash, Hasher};

use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::{self, QuantFormat};

use super::CallSite;
use super::matmul::multiplications;
use super::quantised::{Quantised, check_planes};
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, spec,
};
use crate::{Array, DType};

/// (x `[T, K]`, quants, scales, {biases}) → x · Wᵀ, `[T, N]`, with W quantised in rows of K.
#[derive(Hash, Debug)]
pub(crate) struct QuantMatmul {
    /// The quantised format of W.
    pub format: QuantFormat,
}

impl Operation for QuantMatmul {
    fn name(&self) -> &'static str {
        "quant_matmul"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, planes @ ..] = inputs else {
            return Err("it needs an array and a quantised matrix".to_string());
        };
        check_planes(&self.format, planes)?;
        let columns = self.format.columns(planes[0].dim(1));
        if x.rank() != 2 || x.dim(1) != columns || !x.dtype.is_float() {
            return Err(format!("{x} does not fit rows of {columns} values"));
        }
        Ok(vec![ArraySpec::new(&[x.dim(0), planes[0].dim(0)], DType::F32)])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let ([x, quants, scales], biases, [out]) = spec::operands_with_optional(operands);
        Ok(quantised::matmul(traits, &self.format, x, quants, scales, biases, out)?.into())
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let matrix = x.matrix(WeightStorage::Quantised(self.format), 1);
            let rows = matrix.shape()[0];
            let mut product = vec![0.0; x.shape(0)[0] * rows];
            matrix.rows().multiply(&x.f32(0), 0..rows, &mut product);
            Values::F32(product)
        });
    }

    fn detail(&self) -> String {
        format!(" {}", self.format)
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        multiplications(operands)
    }
}

impl Quantised {
    /// x (floats `[.., K]`) · Wᵀ → f32 `[.., N]`. Invalid if the planes or x do not fit.
    #[track_caller]
    pub fn matmul(&self, x: &Array) -> Array {
        let call_site = CallSite::new("quant_matmul");
        let multiply = |x: &Array| {
            let inputs: Vec<&Array> = [x].into_iter().chain(self.planes()).collect();
            call_site.apply(QuantMatmul { format: self.format }, &inputs)
        };
        match x.shape().split_last().filter(|(k, _)| **k == self.columns()) {
            Some((&k, outer)) => {
                let product = multiply(&call_site.reshape(x, &[outer.iter().product(), k]));
                let shape: Vec<usize> = outer.iter().copied().chain([self.rows()]).collect();
                call_site.reshape(&product, &shape)
            }
            // Returns the error of the shape check.
            None => multiply(x),
        }
    }
}
