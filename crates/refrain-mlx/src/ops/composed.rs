//! Functions of several steps that are one array each until a program is lowered.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite, DType};

/// A function of arrays by its name, which no other has.
struct Function {
    name: &'static str,
    /// The dtype of the result.
    dtype: DType,
    function: fn(&[Array]) -> Array,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Composite for Function {
    fn name(&self) -> &'static str {
        self.name
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        (self.name, self.dtype).hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        (self.function)(inputs).astype(self.dtype)
    }
}

/// `function` of `inputs`, whose shape is known, converted to `dtype`.
pub(crate) fn composed(
    name: &'static str,
    function: fn(&[Array]) -> Array,
    inputs: &[&Array],
    shape: &[usize],
    dtype: DType,
) -> Array {
    let function = Function { name, dtype, function };
    Array::composed(function, inputs, None, shape, dtype)
}
