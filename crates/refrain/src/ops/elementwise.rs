//! One value per element: arithmetic, comparisons, functions, conversions, fills.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};

use super::Caller;
use super::number::{Number, Term, filled};
use crate::{Array, DType, Device, Primitive};

/// The dtype in which two operands meet: floats before integers, wider before narrower.
pub(crate) fn promote(a: DType, b: DType) -> DType {
    let rank = |d| match d {
        DType::Bool => 0,
        DType::U8 => 1,
        DType::U32 => 2,
        DType::I32 => 3,
        DType::F16 | DType::BF16 => 4,
        DType::F32 => 5,
    };
    match (a, b) {
        (a, b) if a == b => a,
        (a, b) if rank(a) == rank(b) => DType::F32,
        (a, b) if rank(a) > rank(b) => a,
        (_, b) => b,
    }
}

/// The shape in which operands meet by NumPy's rules.
pub(crate) fn broadcast_shapes<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Option<Vec<usize>> {
    let mut result: Vec<usize> = Vec::new();
    for shape in shapes {
        let rank = result.len().max(shape.len());
        let extent = |s: &[usize], d: usize| (d + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
        result = (0..rank)
            .map(|d| match (extent(&result, d), extent(shape, d)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<_>>()?;
    }
    Some(result)
}

/// Steps of an expression under construction.
struct Steps {
    inputs: Vec<DType>,
    steps: Vec<ExpressionStep>,
}

impl Steps {
    /// Loads the operands, each converted to `dtype` if it is another; returns where they are. Numbers come first.
    fn load(operands: &[(Side<'_>, DType)]) -> (Steps, Vec<usize>) {
        let mut this = Steps {
            inputs: vec![],
            steps: vec![],
        };
        let mut at: Vec<usize> = (operands.iter())
            .map(|(side, _)| match *side {
                Side::Number(value, dtype) => this.push(ExpressionStep::Constant { value, dtype }),
                Side::Array(_) => 0,
            })
            .collect();
        for ((side, dtype), at) in operands.iter().zip(&mut at) {
            if let Side::Array(array) = side {
                this.inputs.push(array.dtype());
                *at = this.push(ExpressionStep::Input(this.inputs.len() - 1));
            }
            if side.dtype() != *dtype {
                *at = this.push(ExpressionStep::Cast(*at, *dtype));
            }
        }
        (this, at)
    }

    fn push(&mut self, step: ExpressionStep) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    fn finish(mut self, last: ExpressionStep) -> Expression {
        self.steps.push(last);
        Expression {
            inputs: self.inputs,
            steps: self.steps,
        }
    }
}

/// An operand: an array, or a number that stands beside one.
#[derive(Clone, Copy)]
enum Side<'a> {
    Array(&'a Array),
    Number(Scalar, DType),
}

impl<'a> Side<'a> {
    fn dtype(self) -> DType {
        match self {
            Side::Array(array) => array.dtype(),
            Side::Number(_, dtype) => dtype,
        }
    }

    fn array(self) -> Option<&'a Array> {
        match self {
            Side::Array(array) => Some(array),
            Side::Number(..) => None,
        }
    }
}

/// One value per element of the operands, each broadcast to the others and converted to its dtype. One at least is an
/// array.
fn apply(
    operation: Caller,
    operands: &[(Side<'_>, DType)],
    last: impl Fn(&[usize]) -> ExpressionStep,
    dtype: DType,
) -> Array {
    let arrays: Vec<&Array> = operands.iter().filter_map(|(side, _)| side.array()).collect();
    let Some(shape) = broadcast_shapes(arrays.iter().map(|a| a.shape())) else {
        let shapes: Vec<String> = arrays.iter().map(|a| format!("{:?}", a.shape())).collect();
        return operation.invalid(&arrays, format!("shapes {} do not broadcast", shapes.join(" and ")));
    };
    let (steps, loaded) = Steps::load(operands);
    let expression = steps.finish(last(&loaded));
    let inputs: Vec<Array> = arrays.iter().map(|a| operation.broadcast(a, &shape)).collect();
    let inputs: Vec<&Array> = inputs.iter().collect();
    operation.node(Primitive::Elementwise(expression), &inputs, &shape, dtype)
}

fn binary(operation: Caller, kind: BinaryOp, sides: [Side<'_>; 2]) -> Array {
    use BinaryOp::*;
    let common = promote(sides[0].dtype(), sides[1].dtype());
    let common = match kind {
        // Numbers: truth values add up as integers, and a quotient or power is a fraction.
        Add | Sub | Mul | Rem | Shl | Shr if common == DType::Bool => DType::I32,
        Div | Pow if !common.is_float() => DType::F32,
        _ => common,
    };
    if matches!(kind, And | Or | Xor | Shl | Shr) && common.is_float() {
        let what = format!("{} and {} are not both integers", sides[0].dtype(), sides[1].dtype());
        let arrays: Vec<&Array> = sides.iter().filter_map(|side| side.array()).collect();
        return operation.invalid(&arrays, what);
    }
    let result = if matches!(kind, Eq | Ne | Lt | Le | Gt | Ge) {
        DType::Bool
    } else {
        common
    };
    let operands = sides.map(|side| (side, common));
    apply(
        operation,
        &operands,
        |x| ExpressionStep::Binary(kind, x[0], x[1]),
        result,
    )
}

impl Array {
    /// Every element the same number: a float converted to `dtype` as [`Array::astype`] does, an integer
    /// exact. Invalid for an integer that an integer `dtype` does not hold.
    ///
    /// ```
    /// # use refrain::{Array, DType, Device};
    /// let x = Array::full(&Device::cpu(), DType::I32, &[2], 16_777_217);
    /// assert_eq!(x.to_vec::<i32>().unwrap(), [16_777_217; 2]);
    /// ```
    #[track_caller]
    pub fn full(device: &Device, dtype: DType, shape: &[usize], value: impl Into<Number>) -> Array {
        filled(Caller::new("full"), device, dtype, shape, value.into())
    }

    /// Zeros.
    #[track_caller]
    pub fn zeros(device: &Device, dtype: DType, shape: &[usize]) -> Array {
        Array::full(device, dtype, shape, 0)
    }

    /// Ones.
    #[track_caller]
    pub fn ones(device: &Device, dtype: DType, shape: &[usize]) -> Array {
        Array::full(device, dtype, shape, 1)
    }

    /// 0, 1, 2, … n−1 → `[n]`.
    #[track_caller]
    pub fn arange(device: &Device, dtype: DType, n: usize) -> Array {
        let mut steps = vec![ExpressionStep::Index];
        if dtype != DType::U32 {
            steps.push(ExpressionStep::Cast(0, dtype));
        }
        let expression = Primitive::Elementwise(Expression { inputs: vec![], steps });
        Caller::new("arange").source(device, expression, &[n], dtype)
    }

    fn unary(&self, operation: Caller, kind: UnaryOp) -> Array {
        if matches!(kind, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round) && !self.dtype().is_float() {
            return self.clone();
        }
        let dtype = match (kind, self.dtype()) {
            (UnaryOp::Not, dtype) => dtype,
            // Numbers: truth values count as integers.
            (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign, DType::Bool) => DType::I32,
            (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign, dtype) => dtype,
            (_, dtype) if dtype.is_float() => dtype,
            _ => DType::F32,
        };
        let result = if kind == UnaryOp::Not { DType::Bool } else { dtype };
        apply(
            operation,
            &[(Side::Array(self), dtype)],
            |x| ExpressionStep::Unary(kind, x[0]),
            result,
        )
    }

    fn binary(&self, operation: Caller, kind: BinaryOp, other: impl Term) -> Array {
        match other.scalar_beside(self) {
            Some((value, dtype)) => binary(operation, kind, [Side::Array(self), Side::Number(value, dtype)]),
            None => {
                let other = other.beside(operation, self);
                binary(operation, kind, [self, &other].map(Side::Array))
            }
        }
    }

    /// `number` beside and before this array.
    fn binary_after(&self, operation: Caller, kind: BinaryOp, number: impl Term) -> Array {
        match number.scalar_beside(self) {
            Some((value, dtype)) => binary(operation, kind, [Side::Number(value, dtype), Side::Array(self)]),
            None => {
                let number = number.beside(operation, self);
                binary(operation, kind, [&number, self].map(Side::Array))
            }
        }
    }

    /// The elements converted, for every pair of dtypes: floats round to nearest even; to integers they
    /// are truncated and saturate (NaN gives 0); integers wrap; to bool anything but zero is true.
    #[track_caller]
    pub fn astype(&self, dtype: DType) -> Array {
        if dtype == self.dtype() {
            return self.clone();
        }
        let cast = Primitive::Elementwise(Expression::cast(self.dtype(), dtype));
        Caller::new("astype").node(cast, &[self], self.shape(), dtype)
    }

    /// `self ? a : b` for each element, all three broadcast; `self` is true where it is not zero (NumPy's
    /// `where`). The result has the dtype in which a's and b's meet; two numbers meet in i32 or f32. Invalid
    /// where shapes do not broadcast.
    #[track_caller]
    pub fn select(&self, a: impl Term, b: impl Term) -> Array {
        let operation = Caller::new("select");
        let other = a.array().or(b.array()).unwrap_or(self);
        let [a, b] = [a.beside(operation, other), b.beside(operation, other)];
        let dtype = promote(a.dtype(), b.dtype());
        let operands = [(self, DType::Bool), (&a, dtype), (&b, dtype)].map(|(a, dtype)| (Side::Array(a), dtype));
        apply(
            operation,
            &operands,
            |x| ExpressionStep::Select(x[0], x[1], x[2]),
            dtype,
        )
    }

    /// x · sigmoid(x).
    #[track_caller]
    pub fn silu(&self) -> Array {
        self * &self.sigmoid()
    }
}

macro_rules! unary {
    ($of:literal: $($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Array { $(
            $(#[$doc])*
            ///
            #[doc = $of]
            #[track_caller]
            pub fn $name(&self) -> Array { self.unary(Caller::new(stringify!($name)), UnaryOp::$op) }
        )* }
    };
}

unary! { "Same shape and dtype; truth values count as i32, and integers wrap.":
    /// |x|.
    abs => Abs;
    /// −1, 0 or 1; NaN stays.
    sign => Sign;
}

unary! { "Same shape; floats keep their dtype, integers and truth values become f32.":
    /// eˣ.
    exp => Exp;
    /// Natural logarithm.
    log => Log;
    /// Square root.
    sqrt => Sqrt;
    /// 1 / √x.
    rsqrt => Rsqrt;
    /// Sine of radians, exact over the whole range.
    sin => Sin;
    /// Cosine of radians, exact over the whole range.
    cos => Cos;
    /// Hyperbolic tangent.
    tanh => Tanh;
    /// Gauss's error function.
    erf => Erf;
    /// 1 / (1 + e⁻ˣ).
    sigmoid => Sigmoid;
}

unary! { "Same shape and dtype; integers and truth values stay as they are.":
    /// Largest integer ≤ x.
    floor => Floor;
    /// Smallest integer ≥ x.
    ceil => Ceil;
    /// Nearest integer, ties to even.
    round => Round;
}

unary! { "Same shape, bool.":
    /// Whether x is zero.
    logical_not => Not;
}

macro_rules! binary {
    ($of:literal: $($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Array { $(
            $(#[$doc])*
            ///
            #[doc = $of]
            #[track_caller]
            pub fn $name(&self, other: impl Term) -> Array {
                self.binary(Caller::new(stringify!($name)), BinaryOp::$op, other)
            }
        )* }
    };
}

binary! { "Shapes broadcast; dtypes meet. Invalid where shapes do not broadcast.":
    /// The larger of two; NaN where either is.
    maximum => Max;
    /// The smaller of two; NaN where either is.
    minimum => Min;
}

binary! { "Shapes broadcast; dtypes meet, integers in f32. Invalid where shapes do not broadcast.":
    /// selfᵒᵗʰᵉʳ.
    pow => Pow;
}

binary! { "Shapes broadcast, operands are compared in the dtype in which theirs meet → bool. Invalid where shapes do not broadcast.":
    /// Whether equal.
    eq => Eq;
    /// Whether different.
    ne => Ne;
    /// Whether smaller.
    lt => Lt;
    /// Whether smaller or equal.
    le => Le;
    /// Whether larger.
    gt => Gt;
    /// Whether larger or equal.
    ge => Ge;
}

binary! { "Shapes broadcast; dtypes meet. Invalid for floats, and where shapes do not broadcast.":
    /// Bitwise and; logical for bool.
    bit_and => And;
    /// Bitwise or; logical for bool.
    bit_or => Or;
    /// Bitwise exclusive or; logical for bool.
    bit_xor => Xor;
    /// Shifted left by `other mod 32` bits; truth values count as i32.
    shift_left => Shl;
    /// Shifted right by `other mod 32` bits, keeping an i32's sign; truth values count as i32.
    shift_right => Shr;
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => { $(
        impl<T: Term> $trait<T> for &Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: T) -> Array { self.binary(Caller::new(stringify!($method)), BinaryOp::$op, other) }
        }
        impl<T: Term> $trait<T> for Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: T) -> Array { (&self).$method(other) }
        }
        operators! { $trait $method $op of f32 i32 }
    )* };
    // A literal has one of these two types; the others would leave the result's open.
    ($trait:ident $method:ident $op:ident of $($number:ty)*) => { $(
        impl $trait<&Array> for $number {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: &Array) -> Array {
                let operation = Caller::new(stringify!($method));
                other.binary_after(operation, BinaryOp::$op, self)
            }
        }
        impl $trait<Array> for $number {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: Array) -> Array { self.$method(&other) }
        }
    )* };
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
}

impl Neg for &Array {
    type Output = Array;
    #[track_caller]
    fn neg(self) -> Array {
        self.unary(Caller::new("neg"), UnaryOp::Neg)
    }
}

impl Neg for Array {
    type Output = Array;
    #[track_caller]
    fn neg(self) -> Array {
        -&self
    }
}
