//! The door for operations: all that is known of one is one object.

use std::any::Any;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use crate::ops::Caller;
use crate::rewrite::{Norm, Rewrite};
use crate::{Array, DType, Primitive};

pub use crate::execute::{HostInputs, HostMatrix, HostStep};
pub use crate::ops::projection::JoinedProducts;
pub use crate::ops::quantised::check_planes;
pub use crate::ops::reduce::Reduce;
pub use crate::ops::softmax::Softmax;
pub use crate::ops::take_along::TakeAlong;
pub use crate::ops::top_k::TopK;
pub use crate::ops::write_rows::WriteRows;
pub use crate::passes::{Kernels, renumber};
pub use refrain_kernels::{Call, CallOrder, KernelText, OperandSpec, Push, Traits, Unsupported, Values, glsl};

/// Shape and dtype of an operand or a result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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

impl ArraySpec {
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Extent of dimension `axis`; 0 where there is none.
    pub fn dim(&self, axis: usize) -> usize {
        self.shape.get(axis).copied().unwrap_or(0)
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// The inputs of an operation that takes `N` of them.
///
/// # Errors
/// Another number, in words for the caller.
pub fn exactly<'a, const N: usize>(inputs: &[&'a ArraySpec]) -> Result<[&'a ArraySpec; N], String> {
    <[&ArraySpec; N]>::try_from(inputs).map_err(|_| format!("{} inputs are not {N}", inputs.len()))
}

/// What [`Operation::vmap`] makes of a result: the same over a further axis, and where that axis is.
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

    /// Shapes and dtypes of the new results: those of [`Operation::updates`] come behind them by themselves. One at
    /// least where nothing is updated.
    ///
    /// # Errors
    /// What does not fit, in words for the caller.
    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String>;

    /// The inputs, all states, that are updated in place: the next version of each is a further result.
    fn updates(&self) -> &[usize] {
        &[]
    }

    /// The calls that compute it on a device with these traits. `operands` are the inputs, as they lie, then the
    /// new results; a [`Kernels::workspace`] is the next.
    ///
    /// # Errors
    /// [`Unsupported::NeedsContiguous`] for an operand that is to be copied first; what the device cannot do.
    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported>;

    /// Whether [`Operation::lower`] finds calls: what rewrites ask before they put this in the place of other nodes.
    ///
    /// # Errors
    /// As [`Operation::lower`].
    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        self.lower(traits, operands).map(drop)
    }

    /// The new results in plain Rust, which the CPU executor computes and other devices are compared with; what is
    /// updated is changed in place: [`HostStep::compute`].
    fn reference(&self, step: &HostStep<'_>);

    /// About how many multiplications it takes, or elements that it touches, whichever is more. `operands` are the inputs
    /// and the new results.
    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let counts = operands.iter().map(|operand| operand.layout.count() as u64);
        counts.max().unwrap_or(0)
    }

    /// What is asked for beside the name, in printed graphs.
    fn detail(&self) -> String {
        String::new()
    }

    /// Of matrices whose rows are looked up, how many rows are read and how many there are; none where all is read.
    fn rows_read(&self, _operands: &[OperandSpec]) -> Option<[usize; 2]> {
        None
    }

    /// The inputs that hold a slot for each position of a context, and how many positions back a token sees, if not all.
    fn context(&self) -> Option<(&[usize], Option<u32>)> {
        None
    }

    /// Passes over graphs that have such an operation: what it can be joined with. They depend on the type alone.
    fn rewrites(&self) -> &'static [Rewrite] {
        &[]
    }

    /// The same of what `norm` makes of the first input, if it can compute that itself, and where the norm's weight
    /// then stands among its inputs, if there is one.
    fn normed(&self, _norm: Norm) -> Option<(Arc<dyn Operation>, usize)> {
        None
    }

    /// The derivatives by the inputs, given those by the results; none where there is no such rule.
    fn vjp(&self, _inputs: &[Array], _results: &[Array], _cotangents: &[Array]) -> Option<Vec<Array>> {
        None
    }

    /// The results over a further axis of some inputs, at the places given; none where there is no such rule.
    fn vmap(&self, _inputs: &[Array], _axes: &[Option<usize>]) -> Option<Vec<Batched>> {
        None
    }
}

impl Array {
    /// The results of an operation of one's own: what is new, then the next versions of the states that it updates, in
    /// the order of [`Operation::updates`]. Invalid where the operation says so, where it has another number of results
    /// than the caller takes, and where the inputs are none or on several devices.
    ///
    /// Results are evaluated together: where one is asked for, those that anything else still names are computed with it.
    ///
    /// ```text
    /// let [sorted] = Array::apply(Sort, &[&x]);
    /// let [average, averages] = Array::apply(MovingAverage { keep: 0.5 }, &[&averages, &x]);
    /// ```
    #[track_caller]
    pub fn apply<const N: usize>(operation: impl Operation, inputs: &[&Array]) -> [Array; N] {
        let caller = Caller::new(operation.name());
        let made = results(caller, operation, inputs).and_then(|made| {
            let count = made.len();
            <[Array; N]>::try_from(made).map_err(|_| format!("it has {count} results, and {N} are taken"))
        });
        made.unwrap_or_else(|what| {
            let invalid = caller.invalid(inputs, what);
            std::array::from_fn(|_| invalid.clone())
        })
    }
}

/// All results of an operation.
fn results(caller: Caller, operation: impl Operation, inputs: &[&Array]) -> Result<Vec<Array>, String> {
    let specs: Vec<&ArraySpec> = inputs.iter().map(|array| array.spec()).collect();
    if inputs.is_empty() || operation.updates().iter().any(|&number| number >= inputs.len()) {
        return Err(format!("{} inputs are too few", inputs.len()));
    }
    let new = operation.results(&specs)?;
    Ok(caller.results(Primitive::Operation(Arc::new(operation)), inputs, new))
}
