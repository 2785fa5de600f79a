//! Parses operands: constants, names, brackets, and their postfixes.

use super::Parser;
use super::expression::with_steps;
use crate::template::budget::enter_level;
use crate::template::error::{RenderError, Try};
use crate::template::lexer::Lexeme;
use crate::template::syntax::{ArgumentList, Postfix, PostfixAction, TemplateExpression};
use crate::template::value::Value;

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Try<TemplateExpression> {
        let _level = enter_level()?;
        self.node()?;
        let constant = match &self.current.0 {
            Lexeme::Name("true" | "True") => Value::Bool(true),
            Lexeme::Name("false" | "False") => Value::Bool(false),
            Lexeme::Name("none" | "None") => Value::None,
            Lexeme::Int(number) => Value::Int(*number),
            Lexeme::Float(number) => Value::Float(*number),
            Lexeme::Name(name) => {
                match *name {
                    "varargs" => self.uses.varargs = true,
                    "kwargs" => self.uses.kwargs = true,
                    "caller" => self.uses.caller = true,
                    _ => {}
                }
                return Ok(TemplateExpression::Name(self.text_name()?));
            }
            Lexeme::Text(_) => return self.strings(),
            Lexeme::Operator("(") => return self.bracketed(),
            Lexeme::Operator("[") => {
                self.next()?;
                let mut items = Vec::new();
                while !self.is("]") {
                    items.push(self.expression()?);
                    if !self.skip(",")? {
                        break;
                    }
                }
                self.expect("]")?;
                return Ok(TemplateExpression::List(items));
            }
            Lexeme::Operator("{") => return self.dict(),
            _ => return Err(self.unexpected("an expression")),
        };
        self.next()?;
        Ok(TemplateExpression::Constant(constant))
    }

    /// Parses adjacent string literals, which are concatenated.
    fn strings(&mut self) -> Try<TemplateExpression> {
        let mut joined = String::new();
        while let Lexeme::Text(text) = &self.current.0 {
            joined.push_str(text);
            self.next()?;
        }
        Ok(TemplateExpression::Constant(Value::text(joined)?))
    }

    fn bracketed(&mut self) -> Try<TemplateExpression> {
        self.next()?;
        if self.skip(")")? {
            return Ok(TemplateExpression::Tuple(Vec::new()));
        }
        let value = self.tuple(true, &[])?;
        self.expect(")")?;
        Ok(value)
    }

    fn dict(&mut self) -> Try<TemplateExpression> {
        self.next()?;
        let mut entries = Vec::new();
        while !self.is("}") {
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.skip(",")? {
                break;
            }
        }
        self.expect("}")?;
        Ok(TemplateExpression::Dict(entries))
    }

    /// Parses attributes, items, slices and calls after a value.
    pub(super) fn postfix(&mut self, value: TemplateExpression) -> Try<TemplateExpression> {
        let mut steps = Vec::new();
        loop {
            let line = self.line();
            let action = if self.skip(".")? {
                match self.current.0 {
                    Lexeme::Int(index) => {
                        self.next()?;
                        PostfixAction::Item(TemplateExpression::Constant(Value::Int(index)))
                    }
                    _ => PostfixAction::Attribute(self.text_name()?),
                }
            } else if self.skip("[")? {
                let item = self.item()?;
                self.expect("]")?;
                item
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

    /// Parses the inside of square brackets after a value.
    fn item(&mut self) -> Try<PostfixAction> {
        let mut bounds = [None, None, None];
        let mut index = 0;
        loop {
            if self.is("]") {
                break;
            } else if self.skip(":")? {
                index += 1;
                if index == bounds.len() {
                    return Err(self.unexpected("\"]\""));
                }
            } else {
                bounds[index] = Some(self.tuple_item()?);
                if !self.is(":") {
                    break;
                }
            }
        }
        match (index, bounds) {
            (0, [Some(item), _, _]) => Ok(PostfixAction::Item(item)),
            (0, _) => Err(self.unexpected("an expression")),
            (_, bounds) => Ok(PostfixAction::Slice(bounds)),
        }
    }

    /// Parses one expression, or a tuple as a key.
    fn tuple_item(&mut self) -> Try<TemplateExpression> {
        self.joined(Self::expression, |parser| parser.skip(","), TemplateExpression::Tuple)
    }

    /// Parses the arguments of a call, with their brackets.
    pub(super) fn arguments(&mut self) -> Try<ArgumentList> {
        let mut given = ArgumentList::default();
        let mut count = 0;
        self.expect("(")?;
        while !self.is(")") {
            if count > 0 {
                self.expect(",")?;
                if self.is(")") {
                    break;
                }
            }
            count += 1;
            self.argument(&mut given)?;
        }
        self.expect(")")?;
        Ok(given)
    }

    fn argument(&mut self, given: &mut ArgumentList) -> Try<()> {
        let line = self.line();
        let misplaced = || RenderError::syntax("misplaced argument", line);
        if self.skip("*")? {
            let spread = Box::new(self.expression()?);
            return match given.spread.replace(spread) {
                None => Ok(()),
                Some(_) => Err(misplaced()),
            };
        }
        if self.skip("**")? {
            let spread = Box::new(self.expression()?);
            return match given.spread_named.replace(spread) {
                None => Ok(()),
                Some(_) => Err(misplaced()),
            };
        }
        if matches!(self.current.0, Lexeme::Name(_)) && *self.ahead()? == Lexeme::Operator("=") {
            let name = self.text_name()?;
            self.next()?;
            let value = self.expression()?;
            given.named.push((name, value));
            return Ok(());
        }
        if !given.named.is_empty() || given.spread_named.is_some() {
            return Err(misplaced());
        }
        given.positional.push(self.expression()?);
        Ok(())
    }
}
