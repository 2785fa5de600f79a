//! One value per element: arithmetic, comparisons, functions, conversions, fills.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use std::panic::Location;

use refrain_kernels::elementwise::{BinaryOp, Expression, Scalar, Step, UnaryOp};

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
    steps: Vec<Step>,
}

impl Steps {
    /// Loads the operands, each converted to `dtype` if it is another; returns where they are.
    fn load(operands: &[(&Array, DType)]) -> (Steps, Vec<usize>) {
        let mut this = Steps {
            inputs: operands.iter().map(|(a, _)| a.dtype()).collect(),
            steps: vec![],
        };
        let mut at = Vec::new();
        for (number, (array, dtype)) in operands.iter().enumerate() {
            let mut step = this.push(Step::Input(number));
            if array.dtype() != *dtype {
                step = this.push(Step::Cast(step, *dtype));
            }
            at.push(step);
        }
        (this, at)
    }

    fn push(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    fn finish(mut self, last: Step) -> Expression {
        self.steps.push(last);
        Expression {
            inputs: self.inputs,
            steps: self.steps,
        }
    }
}

fn apply(
    op: &'static str,
    at: &'static Location<'static>,
    operands: &[(&Array, DType)],
    last: impl Fn(&[usize]) -> Step,
    dtype: DType,
) -> Array {
    let Some(shape) = broadcast_shapes(operands.iter().map(|(a, _)| a.shape())) else {
        let shapes: Vec<String> = operands.iter().map(|(a, _)| format!("{:?}", a.shape())).collect();
        return Array::invalid_at(
            operands[0].0,
            op,
            format!("shapes {} do not broadcast", shapes.join(" and ")),
            at,
        );
    };
    let (steps, loaded) = Steps::load(operands);
    let expression = steps.finish(last(&loaded));
    let inputs: Vec<Array> = operands.iter().map(|(a, _)| a.broadcast_to(&shape)).collect();
    let inputs: Vec<&Array> = inputs.iter().collect();
    Array::lazy(Primitive::Elementwise(expression), &inputs, &shape, dtype)
}

fn constant(device: &Device, dtype: DType, shape: &[usize], value: Scalar) -> Array {
    let expression = Expression {
        inputs: vec![],
        steps: vec![Step::Constant { value, dtype }],
    };
    let scalar = Array::lazy_on(device, Primitive::Elementwise(expression), &[], &[], dtype);
    scalar.broadcast_to(shape)
}

impl Array {
    /// Every element the same number, converted to `dtype`.
    pub fn full(device: &Device, dtype: DType, shape: &[usize], value: f32) -> Array {
        let scalar = match dtype.compute() {
            DType::F32 => Scalar::F32(value),
            DType::I32 => Scalar::I32(value as i32),
            _ => Scalar::U32(value as u32),
        };
        constant(device, dtype, shape, scalar)
    }

    /// Zeros.
    pub fn zeros(device: &Device, dtype: DType, shape: &[usize]) -> Array {
        Array::full(device, dtype, shape, 0.0)
    }

    /// Ones.
    pub fn ones(device: &Device, dtype: DType, shape: &[usize]) -> Array {
        Array::full(device, dtype, shape, 1.0)
    }

    /// 0, 1, 2, … n−1.
    pub fn arange(device: &Device, dtype: DType, n: usize) -> Array {
        let mut steps = vec![Step::Index];
        if dtype != DType::U32 {
            steps.push(Step::Cast(0, dtype));
        }
        let expression = Expression { inputs: vec![], steps };
        Array::lazy_on(device, Primitive::Elementwise(expression), &[], &[n], dtype)
    }

    /// A number beside this array: in this array's dtype, or f32 where integers meet a fraction.
    fn scalar_like(&self, value: f32) -> Array {
        let dtype = if self.dtype().is_float() || (value.fract() == 0.0 && self.dtype() != DType::Bool) {
            self.dtype()
        } else {
            DType::F32
        };
        // A negative number beside unsigned elements keeps its sign by meeting them as i32.
        let dtype = if value < 0.0 && dtype.compute() == DType::U32 {
            DType::I32
        } else {
            dtype
        };
        Array::full(self.device(), dtype, &[], value)
    }

    #[track_caller]
    fn unary(&self, op: &'static str, kind: UnaryOp) -> Array {
        let dtype = match kind {
            UnaryOp::Not => DType::Bool,
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => self.dtype(),
            _ if self.dtype().is_float() => self.dtype(),
            _ => DType::F32,
        };
        apply(
            op,
            Location::caller(),
            &[(self, dtype)],
            |x| Step::Unary(kind, x[0]),
            dtype,
        )
    }

    #[track_caller]
    fn binary(&self, op: &'static str, kind: BinaryOp, other: &Array) -> Array {
        use BinaryOp::*;
        let common = promote(self.dtype(), other.dtype());
        let common = match kind {
            // Numbers: truth values add up as integers, and a quotient or power is a fraction.
            Add | Sub | Mul | Rem if common == DType::Bool => DType::I32,
            Div | Pow if !common.is_float() => DType::F32,
            _ => common,
        };
        if matches!(kind, And | Or | Xor | Shl | Shr) && common.is_float() {
            return Array::invalid(
                self,
                op,
                format!("{} and {} are not integers", self.dtype(), other.dtype()),
            );
        }
        let result = if matches!(kind, Eq | Ne | Lt | Le | Gt | Ge) {
            DType::Bool
        } else {
            common
        };
        apply(
            op,
            Location::caller(),
            &[(self, common), (other, common)],
            |x| Step::Binary(kind, x[0], x[1]),
            result,
        )
    }

    /// The elements converted: floats round to nearest even, to integers they saturate.
    #[track_caller]
    pub fn astype(&self, dtype: DType) -> Array {
        if dtype == self.dtype() {
            return self.clone();
        }
        let expression = Expression::cast(self.dtype(), dtype);
        Array::lazy(Primitive::Elementwise(expression), &[self], self.shape(), dtype)
    }

    /// `self ? a : b` for each element; `self` is true where it is not zero.
    #[track_caller]
    pub fn select(&self, a: &Array, b: &Array) -> Array {
        let dtype = promote(a.dtype(), b.dtype());
        let operands = [(self, DType::Bool), (a, dtype), (b, dtype)];
        apply(
            "select",
            Location::caller(),
            &operands,
            |x| Step::Select(x[0], x[1], x[2]),
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
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Array { $($(#[$doc])* #[track_caller] pub fn $name(&self) -> Array { self.unary(stringify!($name), UnaryOp::$op) })* }
    };
}

unary! {
    /// |x|.
    abs => Abs;
    /// −1, 0 or 1.
    sign => Sign;
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
    /// Largest integer ≤ x.
    floor => Floor;
    /// Smallest integer ≥ x.
    ceil => Ceil;
    /// Nearest integer, ties to even.
    round => Round;
    /// Whether x is zero.
    logical_not => Not;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Array { $($(#[$doc])* #[track_caller] pub fn $name(&self, other: &Array) -> Array { self.binary(stringify!($name), BinaryOp::$op, other) })* }
    };
}

binary! {
    /// selfᵒᵗʰᵉʳ.
    pow => Pow;
    /// The larger of two.
    maximum => Max;
    /// The smaller of two.
    minimum => Min;
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
    /// Bitwise and; logical for bool.
    bit_and => And;
    /// Bitwise or; logical for bool.
    bit_or => Or;
    /// Bitwise exclusive or; logical for bool.
    bit_xor => Xor;
    /// Shifted left.
    shift_left => Shl;
    /// Shifted right.
    shift_right => Shr;
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => { $(
        impl $trait<&Array> for &Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: &Array) -> Array { self.binary(stringify!($method), BinaryOp::$op, other) }
        }
        impl $trait<Array> for Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: Array) -> Array { (&self).$method(&other) }
        }
        impl $trait<&Array> for Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: &Array) -> Array { (&self).$method(other) }
        }
        impl $trait<Array> for &Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: Array) -> Array { self.$method(&other) }
        }
        impl $trait<f32> for &Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: f32) -> Array { self.$method(&self.scalar_like(other)) }
        }
        impl $trait<f32> for Array {
            type Output = Array;
            #[track_caller]
            fn $method(self, other: f32) -> Array { (&self).$method(other) }
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
        self.unary("neg", UnaryOp::Neg)
    }
}

impl Neg for Array {
    type Output = Array;
    #[track_caller]
    fn neg(self) -> Array {
        -&self
    }
}
