//! Expressions: steps, ops and their dtypes.

use std::hash::{Hash, Hasher};

use crate::{DType, Values};

/// Functions of one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// `-x`; integers wrap.
    Neg,
    /// Magnitude.
    Abs,
    /// -1, 0 or 1.
    Sign,
    /// `e^x`.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// Sine of an angle in radians.
    Sin,
    /// Cosine of an angle in radians.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Largest integer not above.
    Floor,
    /// Smallest integer not below.
    Ceil,
    /// Nearest integer, ties to even.
    Round,
    /// Whether the value is zero, as `Bool`.
    Not,
}

impl UnaryOp {
    /// Every unary op, in the order in which tables list them.
    pub const ALL: [UnaryOp; 16] = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Sign,
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Sqrt,
        UnaryOp::Rsqrt,
        UnaryOp::Sin,
        UnaryOp::Cos,
        UnaryOp::Tanh,
        UnaryOp::Erf,
        UnaryOp::Sigmoid,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Round,
        UnaryOp::Not,
    ];

    /// Returns the dtype of the result, or `None` if the op does not take `dtype`.
    pub fn output(self, dtype: DType) -> Option<DType> {
        let takes = match self {
            UnaryOp::Not => return Some(DType::Bool),
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => dtype != DType::Bool,
            _ => dtype.is_float(),
        };
        takes.then_some(dtype)
    }
}

/// Functions of two values of one dtype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; of integers rounded towards zero.
    Div,
    /// Remainder with the dividend's sign.
    Rem,
    /// Power; floats only.
    Pow,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// Equal, as `Bool`.
    Eq,
    /// Not equal, as `Bool`.
    Ne,
    /// Less, as `Bool`.
    Lt,
    /// Less or equal, as `Bool`.
    Le,
    /// Greater, as `Bool`.
    Gt,
    /// Greater or equal, as `Bool`.
    Ge,
    /// Bits (or truth values) set in both; no floats.
    And,
    /// Bits (or truth values) set in either; no floats.
    Or,
    /// Bits (or truth values) set in exactly one; no floats.
    Xor,
    /// Shift towards the high bits; integers only.
    Shl,
    /// Shift towards the low bits, keeping an `I32`'s sign; integers only.
    Shr,
}

impl BinaryOp {
    /// Every binary op, in the order in which tables list them.
    pub const ALL: [BinaryOp; 19] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Rem,
        BinaryOp::Pow,
        BinaryOp::Max,
        BinaryOp::Min,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
        BinaryOp::Gt,
        BinaryOp::Ge,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
        BinaryOp::Shl,
        BinaryOp::Shr,
    ];

    /// Returns the dtype of the result, or `None` if the op does not take `dtype`.
    pub fn output(self, dtype: DType) -> Option<DType> {
        use BinaryOp::*;
        let takes = match self {
            Eq | Ne | Lt | Le | Gt | Ge => return Some(DType::Bool),
            Max | Min => true,
            Add | Sub | Mul | Div | Rem => dtype != DType::Bool,
            Pow => dtype.is_float(),
            And | Or | Xor => !dtype.is_float(),
            Shl | Shr => !dtype.is_float() && dtype != DType::Bool,
        };
        takes.then_some(dtype)
    }
}

/// A constant. Compares by bits, so that NaN equals itself.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A float.
    F32(f32),
    /// A signed integer.
    I32(i32),
    /// An unsigned integer.
    U32(u32),
}

impl Scalar {
    /// Returns the value, rounded to `dtype`, as one element of its compute type.
    pub fn to_values(self, dtype: DType) -> Values {
        match self {
            Scalar::F32(x) => Values::F32(vec![x]).cast(dtype),
            Scalar::I32(x) => Values::I32(vec![x]).cast(dtype),
            Scalar::U32(x) => Values::U32(vec![x]).cast(dtype),
        }
    }

    fn bits(self) -> (u8, u32) {
        match self {
            Scalar::F32(x) => (0, x.to_bits()),
            Scalar::I32(x) => (1, x as u32),
            Scalar::U32(x) => (2, x),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

/// One step of an expression. Operands are indices of earlier steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExpressionStep {
    /// The element of this input.
    Input(usize),
    /// The same value for every element.
    Constant {
        /// The value, converted to `dtype`.
        value: Scalar,
        /// The dtype of the step.
        dtype: DType,
    },
    /// The element's row-major index in the output's shape, as `U32`.
    Index,
    /// A function of one earlier step.
    Unary(UnaryOp, usize),
    /// A function of two earlier steps of the same dtype.
    Binary(BinaryOp, usize, usize),
    /// The second operand where the first (a `Bool`) is true, else the third. These have the same dtype.
    Select(usize, usize, usize),
    /// Conversion to another dtype.
    Cast(usize, DType),
}

impl ExpressionStep {
    /// The same step over other earlier steps: `at` of each.
    pub fn renumbered(self, at: impl Fn(usize) -> usize) -> ExpressionStep {
        match self {
            ExpressionStep::Input(_) | ExpressionStep::Constant { .. } | ExpressionStep::Index => self,
            ExpressionStep::Unary(op, a) => ExpressionStep::Unary(op, at(a)),
            ExpressionStep::Binary(op, a, b) => ExpressionStep::Binary(op, at(a), at(b)),
            ExpressionStep::Select(condition, a, b) => ExpressionStep::Select(at(condition), at(a), at(b)),
            ExpressionStep::Cast(a, to) => ExpressionStep::Cast(at(a), to),
        }
    }
}

/// Reasons why an expression is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidExpression {
    /// There are no steps.
    #[error("an expression needs at least one step")]
    Empty,
    /// An operand is not an earlier step, or an input does not exist.
    #[error("step {step} refers to {operand}, which is no earlier step or input")]
    Operand {
        /// The index of the step.
        step: usize,
        /// The index it refers to.
        operand: usize,
    },
    /// An op does not take these dtypes.
    #[error("step {step}: {op} does not take {dtypes:?}")]
    DTypes {
        /// The index of the step.
        step: usize,
        /// The op's name.
        op: String,
        /// The operands' dtypes.
        dtypes: Vec<DType>,
    },
}

/// A function from input elements to one output element: the value of the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Expression {
    /// Storage dtypes of the inputs.
    pub inputs: Vec<DType>,
    /// The steps, in the order in which they are computed.
    pub steps: Vec<ExpressionStep>,
}

impl Expression {
    /// The value of a step that is a float, rounded to its dtype, or that as f32.
    pub fn float(&self, step: usize) -> Option<f32> {
        let constant = match self.steps[step] {
            ExpressionStep::Cast(before, DType::F32) => self.steps[before],
            step => step,
        };
        match constant {
            ExpressionStep::Constant { value, dtype } if dtype.is_float() => {
                value.to_values(dtype).f32().first().copied()
            }
            _ => None,
        }
    }

    /// Returns the conversion of one input to dtype `to`.
    pub fn cast(from: DType, to: DType) -> Expression {
        let mut steps = vec![ExpressionStep::Input(0)];
        if from != to {
            steps.push(ExpressionStep::Cast(0, to));
        }
        Expression {
            inputs: vec![from],
            steps,
        }
    }

    /// Returns the storage dtype of each step.
    ///
    /// # Errors
    /// If there are no steps, an operand does not exist, or an op does not take its operands' dtypes.
    pub fn dtypes(&self) -> Result<Vec<DType>, InvalidExpression> {
        let mut known = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            known.push(self.dtype_of(number, step, &known)?);
        }
        if known.is_empty() {
            Err(InvalidExpression::Empty)
        } else {
            Ok(known)
        }
    }

    fn dtype_of(&self, number: usize, step: &ExpressionStep, known: &[DType]) -> Result<DType, InvalidExpression> {
        let missing = |operand| InvalidExpression::Operand { step: number, operand };
        let of = |operand: usize| known.get(operand).copied().ok_or(missing(operand));
        let rejected = |op: String, dtypes: &[DType]| InvalidExpression::DTypes {
            step: number,
            op,
            dtypes: dtypes.to_vec(),
        };
        match *step {
            ExpressionStep::Input(input) => self.inputs.get(input).copied().ok_or(missing(input)),
            ExpressionStep::Constant { dtype, .. } => Ok(dtype),
            ExpressionStep::Index => Ok(DType::U32),
            ExpressionStep::Unary(op, a) => {
                let a = of(a)?;
                op.output(a).ok_or_else(|| rejected(op.to_string(), &[a]))
            }
            ExpressionStep::Binary(op, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                (a == b)
                    .then(|| op.output(a))
                    .flatten()
                    .ok_or_else(|| rejected(op.to_string(), &[a, b]))
            }
            ExpressionStep::Select(condition, a, b) => {
                let (condition, a, b) = (of(condition)?, of(a)?, of(b)?);
                (condition == DType::Bool && a == b)
                    .then_some(a)
                    .ok_or_else(|| rejected("select".into(), &[condition, a, b]))
            }
            ExpressionStep::Cast(a, to) => of(a).map(|_| to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_that_do_not_fit_are_named() {
        let mixed = Expression {
            inputs: vec![DType::F32, DType::I32],
            steps: vec![
                ExpressionStep::Input(0),
                ExpressionStep::Input(1),
                ExpressionStep::Binary(BinaryOp::Add, 0, 1),
            ],
        };
        let message = mixed.dtypes().expect_err("f32 + i32").to_string();
        assert_eq!(message, "step 2: add does not take [F32, I32]");
        let forward = Expression {
            inputs: vec![],
            steps: vec![ExpressionStep::Unary(UnaryOp::Neg, 0)],
        };
        assert_eq!(
            forward.dtypes(),
            Err(InvalidExpression::Operand { step: 0, operand: 0 })
        );
    }

    #[test]
    fn comparisons_give_truth_values() {
        let less = Expression {
            inputs: vec![DType::F16],
            steps: vec![ExpressionStep::Input(0), ExpressionStep::Binary(BinaryOp::Lt, 0, 0)],
        };
        assert_eq!(less.dtypes(), Ok(vec![DType::F16, DType::Bool]));
    }
}
