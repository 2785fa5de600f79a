//! The largest elements.

use std::hash::{Hash, Hasher};

use refrain_kernels::{take_along, top_k};

use crate::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly};
use crate::{Array, DType};

/// (x) → indices of the `k` largest values along the last dimension, descending, u32, and perhaps these values.
#[derive(Hash, Debug)]
pub struct TopK {
    /// How many.
    pub k: usize,
    /// Whether the values are a result too.
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
        let [x] = exactly(inputs)?;
        match x.shape.split_last() {
            Some((&n, outer)) if self.k <= n => {
                let shape: Vec<usize> = outer.iter().copied().chain([self.k]).collect();
                let dtypes = [DType::U32, x.dtype].into_iter().take(1 + usize::from(self.values));
                let result = |dtype| ArraySpec {
                    shape: shape.clone(),
                    dtype,
                };
                Ok(dtypes.map(result).collect())
            }
            _ => Err(format!("there are no {} largest in {:?}", self.k, x.shape)),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out, values @ ..] = operands else {
            unreachable!("an input and a result or two")
        };
        let made = top_k::calls(traits, x, out, values.first())?;
        Ok(Kernels::with_workspace(made))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (elements, columns) = (x.values(0), x.columns(0));
        drop(x);
        let places = Values::U32(top_k::reference(&elements, columns, self.k));
        if self.values {
            step.store(1, &take_along::reference(&elements, columns, &places, self.k));
        }
        step.store(0, &places);
    }

    fn detail(&self) -> String {
        let with = if self.values { " with values" } else { "" };
        format!(" {}{with}", self.k)
    }
}

impl Array {
    /// Indices of the `k` largest elements along the last dimension, largest first: `[.., n]` of any
    /// dtype → `[.., k]`, u32; the lower index first among equals, NaN above all numbers.
    /// [`Array::take_along`] fetches elements. Invalid for scalars and k > n.
    #[track_caller]
    pub fn top_k(&self, k: usize) -> Array {
        let [places] = Array::apply(TopK { k, values: false }, &[self]);
        places
    }

    /// The `k` largest elements along the last dimension, largest first, and their indices as [`Array::top_k`] gives them:
    /// `[.., k]` of the dtype, and u32. Invalid as that.
    ///
    /// ```
    /// # use refrain::{Array, Device};
    /// let x = Array::from_slice(&Device::cpu(), &[3.0f32, 1.0, 4.0, 1.5], &[4]);
    /// let (largest, places) = x.top_k_with_values(2);
    /// assert_eq!(largest.to_vec::<f32>().unwrap(), [4.0, 3.0]);
    /// assert_eq!(places.to_vec::<u32>().unwrap(), [2, 0]);
    /// ```
    #[track_caller]
    pub fn top_k_with_values(&self, k: usize) -> (Array, Array) {
        let [places, largest] = Array::apply(TopK { k, values: true }, &[self]);
        (largest, places)
    }
}
