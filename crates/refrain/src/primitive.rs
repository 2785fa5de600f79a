use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::elementwise::Expression;
use refrain_kernels::projection::Projection;
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::reduce::ReduceOp;
use refrain_vulkan::MemoryClass;

use crate::operation::Operation;

/// Everything that a graph's node can be: the one flat list that each executor implements.
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
    /// (x) → the last `axes` dimensions reduced to one value.
    Reduce {
        /// How values are combined.
        op: ReduceOp,
        /// How many trailing dimensions disappear.
        axes: usize,
    },
    /// (x) → softmax over the last dimension.
    Softmax,
    /// (x) → index of the largest value along the last dimension, u32.
    ArgMax,
    /// (a `[.., M, K]`, b `[.., K, N]`) → `[.., M, N]`.
    Matmul,
    /// (x `[T, K]`, quants, scales, {biases}) → x · Wᵀ, `[T, N]`, W quantised in rows of K.
    QuantMatmul {
        /// How W is stored.
        format: QuantFormat,
    },
    /// (x `[T, K]`, {norm weight `[K]`}, the planes of each matrix `[N, K]` …, the epilogues' further inputs
    /// `[T, N]` …) → `[T, Σ N]`: products of few tokens with what stands before and behind them, made by
    /// [`crate::passes::regions`].
    Projection(Projection),
    /// (table, indices) → slices of the table along `axis`.
    Take {
        /// The axis that the indices replace.
        axis: usize,
    },
    /// (quants, scales, {biases}, indices `[T]`) → dequantised rows, `[T, K]`.
    QuantTake {
        /// How the table is stored.
        format: QuantFormat,
    },
    /// (x0, x1, …) → joined along `axis`.
    Concatenate {
        /// The axis along which extents add up.
        axis: usize,
    },
    /// (x `[.., n]`, {weight `[n]`}) → x / rms(x) · weight.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
        /// Whether there is a weight.
        weighted: bool,
    },
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
            Primitive::Reduce { .. } => "reduce",
            Primitive::Softmax => "softmax",
            Primitive::ArgMax => "argmax",
            Primitive::Matmul => "matmul",
            Primitive::QuantMatmul { .. } => "quant_matmul",
            Primitive::Projection(_) => "projection",
            Primitive::Take { .. } => "take",
            Primitive::QuantTake { .. } => "quant_take",
            Primitive::Concatenate { .. } => "concatenate",
            Primitive::RmsNorm { .. } => "rms_norm",
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
            Primitive::Reduce { op, axes } => (op, axes).hash(state),
            Primitive::QuantMatmul { format } | Primitive::QuantTake { format } => format.hash(state),
            Primitive::Projection(projection) => projection.hash(state),
            Primitive::Take { axis } | Primitive::Concatenate { axis } => axis.hash(state),
            Primitive::RmsNorm { eps, weighted } => (eps.to_bits(), weighted).hash(state),
            Primitive::Operation(operation) => {
                (**operation).type_id().hash(state);
                operation.key(state);
            }
            Primitive::Reshape | Primitive::Broadcast | Primitive::Softmax | Primitive::ArgMax | Primitive::Matmul => {}
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
            Primitive::Reduce { op, axes } => write!(f, "reduce {op:?} over {axes}"),
            Primitive::QuantMatmul { format } => write!(f, "quant_matmul {format}"),
            Primitive::Projection(projection) => write!(f, "projection {projection}"),
            Primitive::QuantTake { format } => write!(f, "quant_take {format}"),
            Primitive::Take { axis } => write!(f, "take axis {axis}"),
            Primitive::Concatenate { axis } => write!(f, "concatenate axis {axis}"),
            Primitive::RmsNorm { eps, .. } => write!(f, "rms_norm eps {eps:e}"),
            Primitive::Operation(operation) => write!(f, "{}{}", operation.name(), operation.detail()),
            _ => f.write_str(self.name()),
        }
    }
}
