//! The door for operations: all that is known of one is one object.

use std::any::Any;
use std::fmt;
use std::hash::Hasher;

use crate::ops::Caller;
use crate::{Array, DType, Primitive};

pub use crate::passes::Kernels;
pub use refrain_kernels::{Call, KernelText, OperandSpec, Push, Traits, Unsupported, Values, glsl};

/// Shape and dtype of an operand or a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArraySpec {
    /// Extents.
    pub shape: Vec<usize>,
    /// Storage type of the elements.
    pub dtype: DType,
}

/// An operand's elements on the CPU executor.
#[derive(Clone, PartialEq, Debug)]
pub struct HostArray {
    /// Row-major.
    pub values: Values,
    /// Extents.
    pub shape: Vec<usize>,
}

/// What [`Operation::vmap`] makes: the result of an operation over a further axis, and where that axis is.
pub type Batched = (Array, usize);

/// One operation: everything that is known of it. [`Array::apply`] computes it.
///
/// `examples/own_operation.rs` shows one with a shader of its own.
pub trait Operation: fmt::Debug + Any + Send + Sync {
    /// In printed graphs, error messages and tables.
    fn name(&self) -> &'static str;

    /// Feeds `state` all that tells this from other operations of its type: where it derives `Hash`, by
    /// `self.hash(&mut state)`.
    fn key(&self, state: &mut dyn Hasher);

    /// Shape and dtype of the result.
    ///
    /// # Errors
    /// What does not fit, in words for the caller.
    fn result(&self, inputs: &[ArraySpec]) -> Result<ArraySpec, String>;

    /// The inputs, all states, that are updated in place beside the result.
    fn updates(&self) -> &'static [usize] {
        &[]
    }

    /// The calls that compute it on a device with these traits. `operands` are the inputs, as they lie, then the
    /// result; a [`Kernels::workspace`] is the next. A kernel's name must tell its text from all others.
    ///
    /// # Errors
    /// [`Unsupported::NeedsContiguous`] for an operand that is to be copied first; what the device cannot do.
    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported>;

    /// The result in plain Rust, which the CPU executor computes and other devices are compared with. What is updated
    /// is changed in place.
    fn reference(&self, inputs: &mut [HostArray]) -> Values;

    /// About how many multiplications it takes, or elements that it touches, whichever is more.
    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let counts = operands.iter().map(|operand| operand.layout.count() as u64);
        counts.max().unwrap_or(0)
    }

    /// The derivatives by the inputs, given that by the result; none where there is no such rule.
    fn vjp(&self, _inputs: &[Array], _result: &Array, _cotangent: &Array) -> Option<Vec<Array>> {
        None
    }

    /// The same over a further axis of some inputs, at the places given; none where there is no such rule.
    fn vmap(&self, _inputs: &[Array], _axes: &[Option<usize>]) -> Option<Batched> {
        None
    }
}

impl Array {
    /// The result of an operation of one's own. Invalid where the operation says so, and where the inputs are none or on
    /// several devices.
    #[track_caller]
    pub fn apply(operation: impl Operation, inputs: &[&Array]) -> Array {
        Array::apply_updating(operation, inputs).0
    }

    /// [`Array::apply`], and the next versions of the states that it updates, in the order of [`Operation::updates`].
    #[track_caller]
    pub fn apply_updating(operation: impl Operation, inputs: &[&Array]) -> (Array, Vec<Array>) {
        let caller = Caller::new(operation.name());
        let spec = |array: &&Array| ArraySpec {
            shape: array.shape().to_vec(),
            dtype: array.dtype(),
        };
        let specs: Vec<ArraySpec> = inputs.iter().map(spec).collect();
        if inputs.is_empty() || operation.updates().iter().any(|&number| number >= inputs.len()) {
            let what = format!("{} inputs are too few", inputs.len());
            return (caller.invalid(inputs, what), vec![]);
        }
        match operation.result(&specs) {
            Ok(ArraySpec { shape, dtype }) => {
                let primitive = Primitive::Operation(std::sync::Arc::new(operation));
                caller.updating(primitive, inputs, &shape, dtype)
            }
            Err(what) => (caller.invalid(inputs, what), vec![]),
        }
    }
}
