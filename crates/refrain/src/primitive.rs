use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::elementwise::Expression;
use refrain_vulkan::MemoryClass;

use crate::operation::Operation;
use crate::ops::slice_update::SliceUpdate;
use crate::{Composite, Dimensions, Layout};

/// The kind of a graph node: structural primitives, which passes rewrite, elementwise expressions and operations.
///
/// Notation: inputs are in parentheses, optional inputs in braces, and new results follow the arrow. The next version
/// of each state that the primitive updates ([`Primitive::updates`]) is one more result. Arrays are row-major as in
/// NumPy; negative axes are already resolved.
#[derive(Clone, Debug)]
pub enum Primitive {
    /// An evaluated array, a weight or a version of a state.
    Stored {
        /// The slot to which the memory is bound when the program runs.
        slot: usize,
        /// What the memory is used for.
        class: MemoryClass,
        /// Number of updates since the version that is read.
        updates_since: u64,
    },
    /// An argument of a traced function, read from the control block.
    Input {
        /// The argument's name.
        name: String,
    },
    /// () → an i32 without dimensions that is no part of the program's signature. It is replaced when the graph is
    /// built: by a constant, or by a word of [`Primitive::Integers`].
    Integer {
        /// The integer.
        value: i32,
    },
    /// The integers that differ between runs, i32 `[n]`, read from the control block.
    Integers,
    /// (x) → the same elements in row-major order with another shape.
    Reshape,
    /// (x) → dimensions reordered: result dimension `d` is `axes[d]` of x.
    Permute {
        /// A permutation of the dimensions.
        axes: Dimensions,
    },
    /// (x) → `x[start:stop:step]` in each dimension.
    Slice(Box<SliceBounds>),
    /// (x) → x broadcast to a larger shape.
    Broadcast,
    /// (x0, x1, …), all of the result's shape → one value per element.
    Elementwise(Expression),
    /// (x0, …) → what a [`Composite`] composes of them. It is replaced when the graph is built.
    Composite {
        /// The composite.
        composite: Arc<dyn Composite>,
        /// An integer that it reads, and that is no part of the program's signature.
        integer: Option<i32>,
    },
    /// Any other operation: see [`crate::operation`].
    Operation(Arc<dyn Operation>),
}

/// The elements `start, start + step, …` before `stop` of each dimension.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SliceBounds {
    /// First index, per dimension.
    pub start: Dimensions,
    /// One past the last index, per dimension.
    pub stop: Dimensions,
    /// Step between indices, per dimension; at least 1.
    pub step: Dimensions,
}

impl SliceBounds {
    /// These elements of an array with this layout.
    pub fn of(&self, layout: &Layout) -> Layout {
        layout.slice(&self.start, &self.stop, &self.step)
    }
}

impl fmt::Display for SliceBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SliceBounds { start, stop, step } = self;
        write!(f, "{start:?}..{stop:?} by {step:?}")
    }
}

impl Primitive {
    /// Name in printed graphs, error messages and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Primitive::Stored { .. } => "stored",
            Primitive::Input { .. } => "input",
            Primitive::Integer { .. } => "integer",
            Primitive::Integers => "integers",
            Primitive::Reshape => "reshape",
            Primitive::Permute { .. } => "permute",
            Primitive::Slice(_) => "slice",
            Primitive::Broadcast => "broadcast",
            Primitive::Elementwise(_) => "elementwise",
            Primitive::Composite { composite, .. } => composite.name(),
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

    /// Whether this is memory that exists before anything is computed.
    pub fn is_leaf(&self) -> bool {
        matches!(
            self,
            Primitive::Stored { .. } | Primitive::Input { .. } | Primitive::Integers
        )
    }

    /// Hashes everything but [`Primitive::integer`].
    pub(crate) fn hash_structure<H: Hasher>(&self, state: &mut H) {
        match (self, self.operation::<SliceUpdate>()) {
            (_, Some(update)) => {
                update.type_id().hash(state);
                update.hash_structure(state);
            }
            (Primitive::Integer { .. }, _) => std::mem::discriminant(self).hash(state),
            (Primitive::Composite { composite, integer }, _) => {
                std::mem::discriminant(self).hash(state);
                ((**composite).type_id(), integer.is_some()).hash(state);
                composite.key(state);
            }
            _ => self.hash(state),
        }
    }

    /// The integer that is no part of the signature, if there is one.
    pub(crate) fn integer(&self) -> Option<i32> {
        match self {
            Primitive::Integer { value } => Some(*value),
            Primitive::Composite { integer, .. } => *integer,
            _ => self.operation::<SliceUpdate>()?.moving_start(),
        }
    }

    /// Whether this only copies the elements of its single input.
    pub fn is_copy(&self) -> bool {
        match self {
            Primitive::Elementwise(expression) => match expression.inputs[..] {
                [dtype] => *expression == Expression::cast(dtype, dtype),
                _ => false,
            },
            _ => false,
        }
    }

    /// Indices of the inputs, all states, that this updates in place. The next version of each is a result after the
    /// new ones.
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
            Primitive::Stored {
                slot,
                class,
                updates_since,
            } => (slot, class, updates_since).hash(state),
            Primitive::Input { name } => name.hash(state),
            Primitive::Permute { axes } => axes.hash(state),
            Primitive::Slice(bounds) => bounds.hash(state),
            Primitive::Elementwise(expression) => expression.hash(state),
            Primitive::Operation(operation) => {
                (**operation).type_id().hash(state);
                operation.key(state);
            }
            Primitive::Integer { value } => value.hash(state),
            Primitive::Composite { composite, integer } => {
                ((**composite).type_id(), integer).hash(state);
                composite.key(state);
            }
            Primitive::Integers | Primitive::Reshape | Primitive::Broadcast => {}
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Stored {
                class, updates_since, ..
            } => {
                write!(f, "{}", format!("{class:?}").to_lowercase())?;
                if *updates_since > 0 {
                    write!(f, "@-{updates_since}")
                } else {
                    Ok(())
                }
            }
            Primitive::Input { name } => write!(f, "input {name}"),
            Primitive::Permute { axes } => write!(f, "permute {axes:?}"),
            Primitive::Slice(bounds) => write!(f, "slice {bounds}"),
            Primitive::Elementwise(expression) => write!(f, "elementwise {{{expression}}}"),
            Primitive::Operation(operation) => write!(f, "{}{}", operation.name(), operation.detail()),
            _ => f.write_str(self.name()),
        }
    }
}
