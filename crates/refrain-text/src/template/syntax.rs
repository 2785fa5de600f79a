//! The syntax tree of a template. Chains (`a + b + c`, `x | f | g`, `elif`) are lists, so that their length takes
//! no stack.

use std::rc::Rc;

use super::value::{TemplateText, Value};

/// A statement with its first line.
#[derive(Debug)]
pub(super) struct Statement {
    pub line: u32,
    pub action: Action,
}

pub(super) type Body = Vec<Statement>;

#[derive(Debug)]
pub(super) enum Action {
    Write(TemplateText),
    Print(TemplateExpression),
    /// Branches with their conditions, and the `else` body.
    If(Vec<(TemplateExpression, Body)>, Body),
    For(Rc<ForLoop>),
    Set(AssignTarget, TemplateExpression),
    /// Assigns what the body renders, through filters.
    SetBlock(AssignTarget, Vec<Postfix>, Body),
    FilterBlock(Vec<Postfix>, Body),
    With(Vec<(AssignTarget, TemplateExpression)>, Body),
    Macro(Rc<MacroSource>),
    /// A call, and the body that it gets as `caller`.
    Call(TemplateExpression, Rc<MacroSource>),
    Do(TemplateExpression),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct ForLoop {
    pub target: AssignTarget,
    pub items: TemplateExpression,
    pub filter: Option<TemplateExpression>,
    pub recursive: bool,
    pub body: Body,
    pub otherwise: Body,
}

#[derive(Debug)]
pub(super) struct MacroSource {
    pub name: TemplateText,
    pub parameters: Vec<(TemplateText, Option<TemplateExpression>)>,
    pub body: Body,
    pub uses: SpecialNames,
}

/// Which of the special macro names a macro uses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SpecialNames {
    pub varargs: bool,
    pub kwargs: bool,
    pub caller: bool,
}

impl SpecialNames {
    /// The union of both.
    pub fn or(self, other: Self) -> Self {
        SpecialNames {
            varargs: self.varargs || other.varargs,
            kwargs: self.kwargs || other.kwargs,
            caller: self.caller || other.caller,
        }
    }
}

/// The target of an assignment.
#[derive(Debug)]
pub(super) enum AssignTarget {
    Name(TemplateText),
    /// A variable of a namespace.
    Attribute(TemplateText, TemplateText),
    Tuple(Vec<AssignTarget>),
}

#[derive(Debug)]
pub(super) enum TemplateExpression {
    Constant(Value),
    Name(TemplateText),
    List(Vec<TemplateExpression>),
    Tuple(Vec<TemplateExpression>),
    Dict(Vec<(TemplateExpression, TemplateExpression)>),
    /// Signs and negations, outermost first.
    Unary(Vec<Sign>, Box<TemplateExpression>),
    /// Left-associative operators of one precedence.
    Binary(Box<TemplateExpression>, Vec<(Operator, TemplateExpression)>),
    Concatenation(Vec<TemplateExpression>),
    Comparison(Box<TemplateExpression>, Vec<(Relation, TemplateExpression)>),
    And(Vec<TemplateExpression>),
    Or(Vec<TemplateExpression>),
    /// Value, condition, and alternative.
    Conditional(Box<(TemplateExpression, TemplateExpression, Option<TemplateExpression>)>),
    Steps(Box<TemplateExpression>, Vec<Postfix>),
}

/// An operation on the value before it, with its line.
#[derive(Debug)]
pub(super) struct Postfix {
    pub line: u32,
    pub action: PostfixAction,
}

#[derive(Debug)]
pub(super) enum PostfixAction {
    Attribute(TemplateText),
    Item(TemplateExpression),
    Slice([Option<TemplateExpression>; 3]),
    Call(ArgumentList),
    Filter(TemplateText, ArgumentList),
    Test(TemplateText, ArgumentList, bool),
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct ArgumentList {
    pub positional: Vec<TemplateExpression>,
    pub named: Vec<(TemplateText, TemplateExpression)>,
    /// After `*`.
    pub spread: Option<Box<TemplateExpression>>,
    /// After `**`.
    pub spread_named: Option<Box<TemplateExpression>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sign {
    Not,
    Minus,
    Plus,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}
