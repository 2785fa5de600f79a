//! The [`Operation`] trait.

use std::any::Any;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use refrain_kernels::rms_norm::Norm;
use refrain_kernels::{OperandSpec, Traits, Unsupported};

use super::{ArraySpec, Kernels};
use crate::Array;
use crate::execute::HostStep;
use crate::rewrite::Rewrite;

/// A result of [`Operation::vmap`]: the array with one more axis, and the index of that axis.
pub type Batched = (Array, usize);

/// An operation: everything that the library knows of it. [`Array::apply`] calls it.
///
/// `examples/own_operation.rs` implements one with its own shader.
pub trait Operation: fmt::Debug + Any + Send + Sync {
    /// Name in printed graphs, error messages and tables.
    fn name(&self) -> &'static str;

    /// Feeds to `state` everything that distinguishes this from other operations of the same type. If the type derives
    /// `Hash`, that is `self.hash(&mut state)`.
    fn key(&self, state: &mut dyn Hasher);

    /// Shapes and dtypes of the new results. The results of [`Operation::updates`] follow them and are not listed.
    /// There must be at least one result in all.
    ///
    /// # Errors
    /// What does not fit, as a message for the user.
    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String>;

    /// Indices of the inputs, all states, that are updated in place. The next version of each is one more result.
    fn updates(&self) -> &[usize] {
        &[]
    }

    /// For an operation whose only result has the shape and dtype of its first input: the operation that updates the
    /// first input in place, and has no new results. It is lowered instead of this one, over a copy if something else
    /// refers to that input. Then [`Operation::lower`] and [`Operation::reference`] are not used.
    fn in_place(&self) -> Option<Arc<dyn Operation>> {
        None
    }

    /// Whether there is an [`Operation::in_place`]. Evaluations ask for it each time.
    fn has_in_place(&self) -> bool {
        self.in_place().is_some()
    }

    /// The kernel calls that compute it on a device with these traits. `operands` are the inputs, in their layouts, and
    /// then the new results; a [`Kernels::workspace`] is the operand after those.
    ///
    /// # Errors
    /// [`Unsupported::NeedsContiguous`] for an operand that has to be copied first; otherwise, what the device lacks.
    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported>;

    /// Whether [`Operation::lower`] succeeds. Rewrites call it before they replace nodes by this operation.
    ///
    /// # Errors
    /// As [`Operation::lower`].
    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        self.lower(traits, operands).map(drop)
    }

    /// Computes the results in plain Rust. The CPU executor runs this, and other devices are tested against it. Updated
    /// states are changed in place: see [`HostStep::compute`].
    fn reference(&self, step: &HostStep<'_>);

    /// Approximate number of multiplications, or of elements accessed if that is larger. `operands` are the inputs and
    /// the new results.
    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let counts = operands.iter().map(|operand| operand.layout.count() as u64);
        counts.max().unwrap_or(0)
    }

    /// What is printed after the name in graphs.
    fn detail(&self) -> String {
        String::new()
    }

    /// For matrices whose rows are looked up: the number of rows read and of all rows. `None` if all rows are read.
    fn rows_read(&self, _operands: &[OperandSpec]) -> Option<[usize; 2]> {
        None
    }

    /// The inputs that hold a slot for each position of a context, and the window: the number of positions that a token
    /// attends to, `None` for all.
    fn context(&self) -> Option<(&[usize], Option<u32>)> {
        None
    }

    /// Graph passes for graphs that contain such an operation. They may depend on the type only.
    fn rewrites(&self) -> &'static [Rewrite] {
        &[]
    }

    /// The operation that also applies `norm` to its first input, if there is such an operation, and the index among
    /// its inputs at which the norm's weight is inserted.
    fn normed(&self, _norm: Norm) -> Option<(Arc<dyn Operation>, usize)> {
        None
    }

    /// Gradients with respect to the inputs, from those of the results. `None` if the operation is not differentiable.
    fn vjp(&self, _inputs: &[Array], _results: &[Array], _cotangents: &[Array]) -> Option<Vec<Array>> {
        None
    }

    /// The results with one more axis in some inputs, at the given indices. `None` if that is not supported.
    fn vmap(&self, _inputs: &[Array], _axes: &[Option<usize>]) -> Option<Vec<Batched>> {
        None
    }
}
