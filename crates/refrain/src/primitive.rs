use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::elementwise::Expression;
use refrain_vulkan::MemoryClass;

use crate::operation::Operation;

/// Everything that a graph's node can be: what is structural, which passes rewrite, and operations.
///
/// What is new among its results stands behind the arrow; the next version of each state that it updates
/// ([`Primitive::updates`]) is a result behind that.
/// Inputs are named in parentheses, in order; those in braces may be missing. Arrays are row-major as in
/// NumPy, negative axes already resolved.
#[derive(Clone, Debug)]
pub enum Primitive {
    /// An evaluated array, a weight or a state at one of its versions.
    Stored {
        /// The number by which the memory is bound when the program runs.
        slot: usize,
        /// What the memory is for.
        class: MemoryClass,
        /// How many versions of the contents have come since the one that is meant.
        behind: u64,
    },
    /// An argument of a traced function, read from the control block.
    Input {
        /// The argument's name.
        name: String,
    },
    /// (x) → the same elements in row-major order with another shape.
    Reshape,
    /// (x) → dimensions reordered: result dimension `d` is `axes[d]` of x.
    Permute {
        /// A permutation of the dimensions.
        axes: Vec<usize>,
    },
    /// (x) → `x[start:stop:step]` in each dimension.
    Slice {
        /// First index, per dimension.
        start: Vec<usize>,
        /// Index before which to stop, per dimension.
        stop: Vec<usize>,
        /// Distance between indices, per dimension; at least 1.
        step: Vec<usize>,
    },
    /// (x) → repeated to a larger shape.
    Broadcast,
    /// (x0, x1, …), all of the result's shape → one value per element.
    Elementwise(Expression),
    /// All others: each stands in a file of its own ([`crate::operation`]), or comes from a user's.
    Operation(Arc<dyn Operation>),
}

impl Primitive {
    /// The name in printed graphs, error messages and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Primitive::Stored { .. } => "stored",
            Primitive::Input { .. } => "input",
            Primitive::Reshape => "reshape",
            Primitive::Permute { .. } => "permute",
            Primitive::Slice { .. } => "slice",
            Primitive::Broadcast => "broadcast",
            Primitive::Elementwise(_) => "elementwise",
            Primitive::Operation(operation) => operation.name(),
        }
    }

    /// The operation of this type, if it is one.
    pub fn operation<T: Operation>(&self) -> Option<&T> {
        match self {
            Primitive::Operation(operation) => (&**operation as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// Whether this only names memory that is there before anything is computed.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Primitive::Stored { .. } | Primitive::Input { .. })
    }

    /// Whether this writes the elements of its one input somewhere else, and nothing more.
    pub fn is_copy(&self) -> bool {
        match self {
            Primitive::Elementwise(expression) => match expression.inputs[..] {
                [dtype] => *expression == Expression::cast(dtype, dtype),
                _ => false,
            },
            _ => false,
        }
    }

    /// The inputs, all states, that this updates in place: the next version of each is a result behind the new ones.
    pub fn updates(&self) -> &[usize] {
        match self {
            Primitive::Operation(operation) => operation.updates(),
            _ => &[],
        }
    }
}

impl Hash for Primitive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Primitive::Stored { slot, class, behind } => (slot, class, behind).hash(state),
            Primitive::Input { name } => name.hash(state),
            Primitive::Permute { axes } => axes.hash(state),
            Primitive::Slice { start, stop, step } => (start, stop, step).hash(state),
            Primitive::Elementwise(expression) => expression.hash(state),
            Primitive::Operation(operation) => {
                (**operation).type_id().hash(state);
                operation.key(state);
            }
            Primitive::Reshape | Primitive::Broadcast => {}
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Stored { class, behind, .. } => {
                write!(f, "{}", format!("{class:?}").to_lowercase())?;
                if *behind > 0 { write!(f, "@-{behind}") } else { Ok(()) }
            }
            Primitive::Input { name } => write!(f, "input {name}"),
            Primitive::Permute { axes } => write!(f, "permute {axes:?}"),
            Primitive::Slice { start, stop, step } => write!(f, "slice {start:?}..{stop:?} by {step:?}"),
            Primitive::Elementwise(expression) => write!(f, "elementwise {{{expression}}}"),
            Primitive::Operation(operation) => write!(f, "{}{}", operation.name(), operation.detail()),
            _ => f.write_str(self.name()),
        }
    }
}
