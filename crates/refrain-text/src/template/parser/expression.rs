//! Parses expressions, from the operators that bind loosest to those that bind tightest.

use super::Parser;
use crate::template::budget::enter_level;
use crate::template::error::{RenderError, Try};
use crate::template::lexer::Lexeme;
use crate::template::syntax::{ArgumentList, Operator, Postfix, PostfixAction, Relation, Sign, TemplateExpression};
use crate::template::value::TemplateText;

impl Parser<'_> {
    /// Parses an expression, or a tuple of several with commas between them. `ends` are names that end it;
    /// `conditional` allows `a if b`.
    pub(super) fn tuple(&mut self, conditional: bool, ends: &[&str]) -> Try<TemplateExpression> {
        let mut items = Vec::new();
        let mut commas = false;
        loop {
            if commas && self.ends_tuple(ends) {
                break;
            }
            items.push(if conditional { self.expression()? } else { self.or()? });
            if !self.skip(",")? {
                break;
            }
            commas = true;
        }
        match items.pop() {
            Some(only) if !commas => Ok(only),
            last => {
                items.extend(last);
                Ok(TemplateExpression::Tuple(items))
            }
        }
    }

    fn ends_tuple(&self, ends: &[&str]) -> bool {
        match &self.current.0 {
            Lexeme::BlockEnd | Lexeme::PrintEnd | Lexeme::Operator(")") => true,
            Lexeme::Name(name) => ends.contains(name),
            _ => false,
        }
    }

    /// Parses any single expression.
    pub(super) fn expression(&mut self) -> Try<TemplateExpression> {
        let _level = enter_level()?;
        self.node()?;
        let mut value = self.or()?;
        while self.skip_name("if")? {
            let condition = self.or()?;
            let otherwise = if self.skip_name("else")? {
                Some(self.expression()?)
            } else {
                None
            };
            self.node()?;
            value = TemplateExpression::Conditional(Box::new((value, condition, otherwise)));
        }
        Ok(value)
    }

    pub(super) fn or(&mut self) -> Try<TemplateExpression> {
        self.joined(Self::and, |parser| parser.skip_name("or"), TemplateExpression::Or)
    }

    fn and(&mut self) -> Try<TemplateExpression> {
        self.joined(Self::not, |parser| parser.skip_name("and"), TemplateExpression::And)
    }

    /// Parses one `part`, or wraps several in `all` if `separator` consumes something between them.
    pub(super) fn joined(
        &mut self,
        part: fn(&mut Self) -> Try<TemplateExpression>,
        separator: fn(&mut Self) -> Try<bool>,
        all: fn(Vec<TemplateExpression>) -> TemplateExpression,
    ) -> Try<TemplateExpression> {
        let first = part(self)?;
        if !separator(self)? {
            return Ok(first);
        }
        let mut parts = vec![first, part(self)?];
        while separator(self)? {
            parts.push(part(self)?);
        }
        Ok(all(parts))
    }

    fn not(&mut self) -> Try<TemplateExpression> {
        let mut signs = Vec::new();
        while self.skip_name("not")? {
            signs.push(Sign::Not);
        }
        let value = self.comparison()?;
        Ok(if signs.is_empty() {
            value
        } else {
            TemplateExpression::Unary(signs, Box::new(value))
        })
    }

    fn comparison(&mut self) -> Try<TemplateExpression> {
        let first = self.sum()?;
        let mut others = Vec::new();
        loop {
            let negated = self.is_name("not") && *self.ahead()? == Lexeme::Name("in");
            let relation = match self.current.0 {
                Lexeme::Operator("==") => Relation::Equal,
                Lexeme::Operator("!=") => Relation::Unequal,
                Lexeme::Operator("<") => Relation::Less,
                Lexeme::Operator("<=") => Relation::LessOrEqual,
                Lexeme::Operator(">") => Relation::Greater,
                Lexeme::Operator(">=") => Relation::GreaterOrEqual,
                Lexeme::Name("in") => Relation::In,
                Lexeme::Name("not") if negated => {
                    self.next()?;
                    Relation::NotIn
                }
                _ => break,
            };
            self.next()?;
            others.push((relation, self.sum()?));
        }
        Ok(if others.is_empty() {
            first
        } else {
            TemplateExpression::Comparison(Box::new(first), others)
        })
    }

    /// Parses left-associative operators of one precedence between operands.
    fn binary(
        &mut self,
        operand: fn(&mut Self) -> Try<TemplateExpression>,
        operators: &[(&str, Operator)],
    ) -> Try<TemplateExpression> {
        let first = operand(self)?;
        let mut others = Vec::new();
        while let Lexeme::Operator(found) = self.current.0 {
            let Some((_, operator)) = operators.iter().find(|(text, _)| *text == found) else {
                break;
            };
            self.next()?;
            others.push((*operator, operand(self)?));
        }
        Ok(if others.is_empty() {
            first
        } else {
            TemplateExpression::Binary(Box::new(first), others)
        })
    }

    fn sum(&mut self) -> Try<TemplateExpression> {
        self.binary(Self::concatenation, &[("+", Operator::Add), ("-", Operator::Subtract)])
    }

    fn concatenation(&mut self) -> Try<TemplateExpression> {
        let first = self.product()?;
        if !self.is("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip("~")? {
            parts.push(self.product()?);
        }
        Ok(TemplateExpression::Concatenation(parts))
    }

    fn product(&mut self) -> Try<TemplateExpression> {
        let operators = [
            ("*", Operator::Multiply),
            ("/", Operator::Divide),
            ("//", Operator::FloorDivide),
            ("%", Operator::Remainder),
        ];
        self.binary(Self::power, &operators)
    }

    fn power(&mut self) -> Try<TemplateExpression> {
        self.binary(Self::filtered, &[("**", Operator::Power)])
    }

    /// Parses a signed value with the filters and tests after it.
    fn filtered(&mut self) -> Try<TemplateExpression> {
        let value = self.signed()?;
        let mut steps = Vec::new();
        loop {
            let line = self.line();
            let action = if self.skip("|")? {
                let name = self.dotted_name()?;
                PostfixAction::Filter(name, self.optional_arguments()?)
            } else if self.is_name("is") {
                if matches!(
                    steps.last(),
                    Some(Postfix {
                        action: PostfixAction::Test(..),
                        ..
                    })
                ) {
                    return Err(RenderError::syntax("tests cannot be chained with \"is\"", line));
                }
                self.next()?;
                self.test()?
            } else if self.is("(") {
                PostfixAction::Call(self.arguments()?)
            } else {
                break;
            };
            self.node()?;
            steps.push(Postfix { line, action });
        }
        Ok(with_steps(value, steps))
    }

    /// Parses the filters of a block, from the first one's name on.
    pub(super) fn filter_chain(&mut self) -> Try<Vec<Postfix>> {
        let mut steps = Vec::new();
        loop {
            let line = self.line();
            let name = self.dotted_name()?;
            let action = PostfixAction::Filter(name, self.optional_arguments()?);
            self.node()?;
            steps.push(Postfix { line, action });
            if !self.skip("|")? {
                return Ok(steps);
            }
        }
    }

    fn dotted_name(&mut self) -> Try<TemplateText> {
        let mut name = self.name()?.to_owned();
        while self.skip(".")? {
            name.push('.');
            name.push_str(self.name()?);
        }
        TemplateText::new(name)
    }

    fn optional_arguments(&mut self) -> Try<ArgumentList> {
        if self.is("(") {
            self.arguments()
        } else {
            Ok(ArgumentList::default())
        }
    }

    /// Parses a test, from behind its `is` on.
    fn test(&mut self) -> Try<PostfixAction> {
        let negated = self.skip_name("not")?;
        let name = self.dotted_name()?;
        let argument = match self.current.0 {
            Lexeme::Operator("(") => return Ok(PostfixAction::Test(name, self.arguments()?, negated)),
            Lexeme::Name("else" | "or" | "and" | "is") => None,
            Lexeme::Name(_) | Lexeme::Text(_) | Lexeme::Int(_) | Lexeme::Float(_) | Lexeme::Operator("[" | "{") => {
                let value = self.primary()?;
                Some(self.postfix(value)?)
            }
            _ => None,
        };
        let given = ArgumentList {
            positional: argument.into_iter().collect(),
            ..ArgumentList::default()
        };
        Ok(PostfixAction::Test(name, given, negated))
    }

    fn signed(&mut self) -> Try<TemplateExpression> {
        let mut signs = Vec::new();
        loop {
            if self.skip("-")? {
                signs.push(Sign::Minus);
            } else if self.skip("+")? {
                signs.push(Sign::Plus);
            } else {
                break;
            }
        }
        let value = self.primary()?;
        let value = self.postfix(value)?;
        Ok(if signs.is_empty() {
            value
        } else {
            TemplateExpression::Unary(signs, Box::new(value))
        })
    }
}

pub(super) fn with_steps(value: TemplateExpression, steps: Vec<Postfix>) -> TemplateExpression {
    match (value, steps.is_empty()) {
        (value, true) => value,
        (TemplateExpression::Steps(value, mut before), false) => {
            before.extend(steps);
            TemplateExpression::Steps(value, before)
        }
        (value, false) => TemplateExpression::Steps(Box::new(value), steps),
    }
}
