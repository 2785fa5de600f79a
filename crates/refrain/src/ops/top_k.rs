//! The largest elements.

use std::hash::{Hash, Hasher};

use refrain_kernels::top_k;

use crate::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly};
use crate::{Array, DType};

/// (x) → indices of the `k` largest values along the last dimension, descending, u32.
#[derive(Hash, Debug)]
pub struct TopK {
    /// How many.
    pub k: usize,
}

impl Operation for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exactly(inputs)?;
        match x.shape.split_last() {
            Some((&n, outer)) if self.k <= n => {
                let shape = outer.iter().copied().chain([self.k]).collect();
                Ok(vec![ArraySpec {
                    shape,
                    dtype: DType::U32,
                }])
            }
            _ => Err(format!("there are no {} largest in {:?}", self.k, x.shape)),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out] = operands else {
            unreachable!("an input and a result")
        };
        Ok(Kernels::with_workspace(top_k::calls(traits, x, out)?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let largest = top_k::reference(&x.values(0), x.columns(0), self.k);
        drop(x);
        step.store(0, &Values::U32(largest));
    }

    fn detail(&self) -> String {
        format!(" {}", self.k)
    }
}

impl Array {
    /// Indices of the `k` largest elements along the last dimension, largest first: `[.., n]` of any
    /// dtype → `[.., k]`, u32; the lower index first among equals, NaN above all numbers.
    /// [`Array::take_along`] fetches the elements. Invalid for scalars and k > n.
    #[track_caller]
    pub fn top_k(&self, k: usize) -> Array {
        let [largest] = Array::apply(TopK { k }, &[self]);
        largest
    }
}
