//! Elementwise operations: arithmetic, comparisons, functions, conversions and fills.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};
use smallvec::SmallVec;

use super::CallSite;
use super::number::{ArrayOrNumber, Number, full};
use crate::operation::ArraySpec;
use crate::{Array, DType, Device, Dimensions, Primitive};

/// The promoted dtype of two operands: floats before integers, wider before narrower.
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

/// The broadcast shape by NumPy's rules, if the shapes are compatible.
pub(crate) fn broadcast_shapes<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Option<Dimensions> {
    let mut result = Dimensions::new();
    for shape in shapes {
        if result[..] == *shape {
            continue;
        }
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

/// The steps of an expression under construction.
struct Steps {
    inputs: Vec<DType>,
    steps: Vec<ExpressionStep>,
}

impl Steps {
    /// Loads the operands, converted to their `dtype`; returns the steps that hold them. Numbers come first.
    fn load(operands: &[(Operand<'_>, DType)]) -> (Steps, SmallVec<[usize; 3]>) {
        let mut this = Steps {
            inputs: Vec::with_capacity(operands.len()),
            steps: Vec::with_capacity(2 * operands.len() + 1),
        };
        let mut at: SmallVec<[usize; 3]> = (operands.iter())
            .map(|(operand, _)| match *operand {
                Operand::Number(value, dtype) => this.push(ExpressionStep::Constant { value, dtype }),
                Operand::Array(_) => 0,
            })
            .collect();
        for ((operand, dtype), at) in operands.iter().zip(&mut at) {
            if let Operand::Array(array) = operand {
                this.inputs.push(array.dtype());
                *at = this.push(ExpressionStep::Input(this.inputs.len() - 1));
            }
            if operand.dtype() != *dtype {
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

/// An operand: an array or a number.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Array(&'a Array),
    Number(Scalar, DType),
}

impl<'a> Operand<'a> {
    fn dtype(self) -> DType {
        match self {
            Operand::Array(array) => array.dtype(),
            Operand::Number(_, dtype) => dtype,
        }
    }

    fn array(self) -> Option<&'a Array> {
        match self {
            Operand::Array(array) => Some(array),
            Operand::Number(..) => None,
        }
    }
}

/// One value per element of the operands, which are broadcast and converted to their dtype. At least one must be an
/// array.
fn apply(
    call_site: CallSite,
    operands: &[(Operand<'_>, DType)],
    last: impl Fn(&[usize]) -> ExpressionStep,
    dtype: DType,
) -> Array {
    let arrays: SmallVec<[&Array; 3]> = operands.iter().filter_map(|(operand, _)| operand.array()).collect();
    let Some(shape) = broadcast_shapes(arrays.iter().map(|a| a.shape())) else {
        let shapes: Vec<String> = arrays.iter().map(|a| format!("{:?}", a.shape())).collect();
        return call_site.invalid(&arrays, format!("shapes {} do not broadcast", shapes.join(" and ")));
    };
    let (steps, loaded) = Steps::load(operands);
    let expression = steps.finish(last(&loaded));
    let inputs = arrays.iter().map(|a| call_site.broadcast(a, &shape)).collect();
    call_site.node_of(Primitive::Elementwise(expression), inputs, ArraySpec { shape, dtype })
}

fn binary(call_site: CallSite, kind: BinaryOp, operands: [Operand<'_>; 2]) -> Array {
    use BinaryOp::*;
    let common = promote(operands[0].dtype(), operands[1].dtype());
    let common = match kind {
        // Bool operands count as integers; a quotient or power of integers is a float.
        Add | Sub | Mul | Rem | Shl | Shr if common == DType::Bool => DType::I32,
        Div | Pow if !common.is_float() => DType::F32,
        _ => common,
    };
    if matches!(kind, And | Or | Xor | Shl | Shr) && common.is_float() {
        let what = format!(
            "{} and {} are not both integers",
            operands[0].dtype(),
            operands[1].dtype()
        );
        let arrays: Vec<&Array> = operands.iter().filter_map(|operand| operand.array()).collect();
        return call_site.invalid(&arrays, what);
    }
    let result = if matches!(kind, Eq | Ne | Lt | Le | Gt | Ge) {
        DType::Bool
    } else {
        common
    };
    let operands = operands.map(|operand| (operand, common));
    apply(
        call_site,
        &operands,
        |x| ExpressionStep::Binary(kind, x[0], x[1]),
        result,
    )
}

impl Array {
    /// An array whose elements are all `value`. A float is converted to `dtype` as by [`Array::astype`]; an integer is
    /// exact. Invalid if an integer is out of `dtype`'s range.
    ///
    /// ```
    /// # use refrain::{Array, DType, Device};
    /// let x = Array::full(&Device::cpu(), DType::I32, &[2], 16_777_217);
    /// assert_eq!(x.to_vec::<i32>().unwrap(), [16_777_217; 2]);
    /// ```
    #[track_caller]
    pub fn full(device: &Device, dtype: DType, shape: &[usize], value: impl Into<Number>) -> Array {
        full(CallSite::new("full"), device, dtype, shape, value.into())
    }

    /// An array of zeros.
    #[track_caller]
    pub fn zeros(device: &Device, dtype: DType, shape: &[usize]) -> Array {
        Array::full(device, dtype, shape, 0)
    }

    /// An array of ones.
    #[track_caller]
    pub fn ones(device: &Device, dtype: DType, shape: &[usize]) -> Array {
        Array::full(device, dtype, shape, 1)
    }

    /// 0, 1, 2, … n−1: `[n]`.
    #[track_caller]
    pub fn arange(device: &Device, dtype: DType, n: usize) -> Array {
        let mut steps = vec![ExpressionStep::Index];
        if dtype != DType::U32 {
            steps.push(ExpressionStep::Cast(0, dtype));
        }
        let expression = Primitive::Elementwise(Expression { inputs: vec![], steps });
        CallSite::new("arange").source(device, expression, &[n], dtype)
    }

    fn unary(&self, call_site: CallSite, kind: UnaryOp) -> Array {
        if matches!(kind, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round) && !self.dtype().is_float() {
            return self.clone();
        }
        let dtype = match (kind, self.dtype()) {
            (UnaryOp::Not, dtype) => dtype,
            // Bool operands count as integers.
            (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign, DType::Bool) => DType::I32,
            (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign, dtype) => dtype,
            (_, dtype) if dtype.is_float() => dtype,
            _ => DType::F32,
        };
        let result = if kind == UnaryOp::Not { DType::Bool } else { dtype };
        apply(
            call_site,
            &[(Operand::Array(self), dtype)],
            |x| ExpressionStep::Unary(kind, x[0]),
            result,
        )
    }

    fn binary(&self, call_site: CallSite, kind: BinaryOp, other: impl ArrayOrNumber) -> Array {
        match other.to_scalar(self) {
            Some((value, dtype)) => binary(call_site, kind, [Operand::Array(self), Operand::Number(value, dtype)]),
            None => {
                let other = other.to_array(call_site, self);
                binary(call_site, kind, [self, &other].map(Operand::Array))
            }
        }
    }

    /// A binary operation with `number` on the left.
    fn binary_after(&self, call_site: CallSite, kind: BinaryOp, number: impl ArrayOrNumber) -> Array {
        match number.to_scalar(self) {
            Some((value, dtype)) => binary(call_site, kind, [Operand::Number(value, dtype), Operand::Array(self)]),
            None => {
                let number = number.to_array(call_site, self);
                binary(call_site, kind, [&number, self].map(Operand::Array))
            }
        }
    }

    /// Converts the elements, for every pair of dtypes. Floats round to nearest even; to integers they are truncated
    /// and saturate (NaN gives 0); integers wrap; to bool, everything but zero is true.
    #[track_caller]
    pub fn astype(&self, dtype: DType) -> Array {
        if dtype == self.dtype() {
            return self.clone();
        }
        let cast = Primitive::Elementwise(Expression::cast(self.dtype(), dtype));
        CallSite::new("astype").node(cast, &[self], self.shape(), dtype)
    }

    /// `self ? a : b` for each element (NumPy's `where`); all three broadcast, and a nonzero `self` counts as true. The
    /// result has the promoted dtype of a and b; two numbers give i32 or f32. Invalid if shapes do not broadcast.
    #[track_caller]
    pub fn select(&self, a: impl ArrayOrNumber, b: impl ArrayOrNumber) -> Array {
        let call_site = CallSite::new("select");
        let other = a.array().or(b.array()).unwrap_or(self);
        let [a, b] = [a.to_array(call_site, other), b.to_array(call_site, other)];
        let dtype = promote(a.dtype(), b.dtype());
        let operands = [(self, DType::Bool), (&a, dtype), (&b, dtype)].map(|(a, dtype)| (Operand::Array(a), dtype));
        apply(
            call_site,
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
            pub fn $name(&self) -> Array { self.unary(CallSite::new(stringify!($name)), UnaryOp::$op) }
        )* }
    };
}

unary! { "Same shape and dtype; bool gives i32, and integers wrap.":
    /// |x|.
    abs => Abs;
    /// −1, 0 or 1; NaN for NaN.
    sign => Sign;
}

unary! { "Same shape; floats keep their dtype, integers and bool give f32.":
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

unary! { "Same shape and dtype; integers and bool are unchanged.":
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
            pub fn $name(&self, other: impl ArrayOrNumber) -> Array {
                self.binary(CallSite::new(stringify!($name)), BinaryOp::$op, other)
            }
        )* }
    };
}

binary! { "Shapes broadcast; dtypes are promoted. Invalid if shapes do not broadcast.":
    /// The larger of both; NaN if either is NaN.
    maximum => Max;
    /// The smaller of both; NaN if either is NaN.
    minimum => Min;
}

binary! { "Shapes broadcast; dtypes are promoted, integers to f32. Invalid if shapes do not broadcast.":
    /// `self` to the power of `other`.
    pow => Pow;
}

binary! { "Shapes broadcast; operands are compared in their promoted dtype → bool. Invalid if shapes do not broadcast.":
    /// Whether both are equal.
    eq => Eq;
    /// Whether both differ.
    ne => Ne;
    /// Whether `self` is smaller.
    lt => Lt;
    /// Whether `self` is smaller or equal.
    le => Le;
    /// Whether `self` is larger.
    gt => Gt;
    /// Whether `self` is larger or equal.
    ge => Ge;
}

binary! { "Shapes broadcast; dtypes are promoted. Invalid for floats, and if shapes do not broadcast.":
    /// Bitwise and; logical for bool.
    bit_and => And;
    /// Bitwise or; logical for bool.
    bit_or => Or;
    /// Bitwise exclusive or; logical for bool.
    bit_xor => Xor;
    /// Shifted left by `other mod 32` bits; bool counts as i32.
    shift_left => Shl;
    /// Shifted right by `other mod 32` bits, keeping the sign of i32; bool counts as i32.
    shift_right => Shr;
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => { $(
        impl<T: ArrayOrNumber> $trait<T> for &Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: T) -> Array { self.binary(CallSite::new(stringify!($method)), BinaryOp::$op, other) }
        }
        impl<T: ArrayOrNumber> $trait<T> for Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: T) -> Array { (&self).$method(other) }
        }
        operators! { $trait $method $op of f32 i32 }
    )* };
    // Literals default to these types; implementing more would make the type of a literal ambiguous.
    ($trait:ident $method:ident $op:ident of $($number:ty)*) => { $(
        impl $trait<&Array> for $number {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: &Array) -> Array {
                let call_site = CallSite::new(stringify!($method));
                other.binary_after(call_site, BinaryOp::$op, self)
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
        self.unary(CallSite::new("neg"), UnaryOp::Neg)
    }
}

impl Neg for Array {
    type Output = Array;
    #[track_caller]
    fn neg(self) -> Array {
        -&self
    }
}
