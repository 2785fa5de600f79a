//! The largest elements.

use std::hash::{Hash, Hasher};

use refrain_kernels::{take_along, top_k};

use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, spec,
};
use crate::{Array, DType};

/// (x) → indices (u32) of the `k` largest values along the last dimension, descending, and optionally these values.
#[derive(Hash, Debug)]
pub struct TopK {
    /// Number of elements.
    pub k: usize,
    /// Whether the values are a second result.
    pub values: bool,
}

impl Operation for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        match x.shape.split_last() {
            Some((&n, outer)) if self.k <= n => {
                let shape: Vec<usize> = outer.iter().copied().chain([self.k]).collect();
                let dtypes = [DType::U32, x.dtype].into_iter().take(1 + usize::from(self.values));
                let result = |dtype| ArraySpec::new(&shape, dtype);
                Ok(dtypes.map(result).collect())
            }
            _ => Err(format!("{:?} has no {} elements along its last axis", x.shape, self.k)),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let ([x, out], values, []) = spec::operands_with_optional(operands);
        let made = top_k::calls(traits, x, out, values)?;
        Ok(Kernels::with_workspace(made))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (elements, columns) = (x.values(0), x.columns(0));
        drop(x);
        let indices = Values::U32(top_k::reference(&elements, columns, self.k));
        if self.values {
            step.store(1, &take_along::reference(&elements, columns, &indices, self.k));
        }
        step.store(0, &indices);
    }

    fn detail(&self) -> String {
        let with = if self.values { " with values" } else { "" };
        format!(" {}{with}", self.k)
    }
}

impl Array {
    /// Indices of the `k` largest elements along the last dimension, largest first: `[.., n]` of any dtype → u32 `[..,
    /// k]`. Of equal elements the lower index comes first; NaN counts as larger than all numbers. [`Array::take_along`]
    /// fetches the elements. Invalid for scalars and k > n.
    #[track_caller]
    pub fn top_k(&self, k: usize) -> Array {
        let [indices] = Array::apply(TopK { k, values: false }, &[self]);
        indices
    }

    /// The `k` largest elements along the last dimension, largest first, and their indices as from [`Array::top_k`]:
    /// `[.., k]` of this dtype, and u32 `[.., k]`. Invalid as [`Array::top_k`].
    ///
    /// ```
    /// # use refrain::{Array, Device};
    /// let x = Array::from_slice(&Device::cpu(), &[3.0f32, 1.0, 4.0, 1.5], &[4]);
    /// let (largest, indices) = x.top_k_with_values(2);
    /// assert_eq!(largest.to_vec::<f32>().unwrap(), [4.0, 3.0]);
    /// assert_eq!(indices.to_vec::<u32>().unwrap(), [2, 0]);
    /// ```
    #[track_caller]
    pub fn top_k_with_values(&self, k: usize) -> (Array, Array) {
        let [indices, largest] = Array::apply(TopK { k, values: true }, &[self]);
        (largest, indices)
    }
}
