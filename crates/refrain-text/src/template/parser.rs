//! Parses lexemes to statements.

use std::rc::Rc;

use super::budget::{MemoryCharge, enter_level};
use super::error::{RenderError, Try};
use super::lexer::{Lexeme, Lexer};
use super::syntax::{
    Action, AssignTarget, Body, ForLoop, MacroSource, PostfixAction, SpecialNames, Statement, TemplateExpression,
};
use super::value::TemplateText;

mod expression;
mod operand;

/// Memory charged for a node of the syntax tree, in bytes.
const NODE_BYTES: usize = 160;

/// Parses a template. All its line ends must be `\n`.
pub(super) fn parse(source: &str) -> Try<Parsed> {
    let mut lexer = Lexer::new(source);
    let first = lexer.next()?;
    let mut parser = Parser {
        lexer,
        current: first,
        ahead: None,
        uses: SpecialNames::default(),
        loops: 0,
        held: Vec::new(),
    };
    let (body, _) = parser.body(&[])?;
    Ok(Parsed {
        body,
        _held: parser.held,
    })
}

/// A parsed template.
#[derive(Debug)]
pub(super) struct Parsed {
    pub body: Body,
    _held: Vec<MemoryCharge>,
}

struct Parser<'s> {
    lexer: Lexer<'s>,
    current: (Lexeme<'s>, u32),
    /// A lexeme that was peeked beyond the current one.
    ahead: Option<(Lexeme<'s>, u32)>,
    /// The special names that the macro being parsed uses.
    uses: SpecialNames,
    /// Number of enclosing loops.
    loops: usize,
    held: Vec<MemoryCharge>,
}

impl<'s> Parser<'s> {
    fn line(&self) -> u32 {
        self.current.1
    }

    /// Advances to the next lexeme and returns the one passed.
    fn next(&mut self) -> Try<Lexeme<'s>> {
        let next = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.lexer.next()?,
        };
        Ok(std::mem::replace(&mut self.current, next).0)
    }

    /// Peeks at the lexeme after the current one.
    fn ahead(&mut self) -> Try<&Lexeme<'s>> {
        if self.ahead.is_none() {
            self.ahead = Some(self.lexer.next()?);
        }
        Ok(self.ahead.as_ref().map_or(&Lexeme::End, |(lexeme, _)| lexeme))
    }

    fn is(&self, operator: &str) -> bool {
        matches!(self.current.0, Lexeme::Operator(found) if found == operator)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.current.0, Lexeme::Name(found) if found == name)
    }

    fn skip(&mut self, operator: &str) -> Try<bool> {
        let found = self.is(operator);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    fn skip_name(&mut self, name: &str) -> Try<bool> {
        let found = self.is_name(name);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    fn expect(&mut self, operator: &str) -> Try<()> {
        if self.skip(operator)? {
            Ok(())
        } else {
            Err(self.unexpected(&format!("{operator:?}")))
        }
    }

    fn expect_end(&mut self, end: &Lexeme<'_>) -> Try<()> {
        if self.current.0 != *end {
            return Err(self.unexpected("the end of the tag"));
        }
        self.next().map(drop)
    }

    fn name(&mut self) -> Try<&'s str> {
        match self.current.0 {
            Lexeme::Name(name) => {
                self.next()?;
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    fn text_name(&mut self) -> Try<TemplateText> {
        let name = self.name()?;
        TemplateText::new(name)
    }

    fn unexpected(&self, expected: &str) -> RenderError {
        let found = match &self.current.0 {
            Lexeme::Data(_) => "text".to_owned(),
            Lexeme::BlockBegin => "\"{%\"".to_owned(),
            Lexeme::BlockEnd => "\"%}\"".to_owned(),
            Lexeme::PrintBegin => "\"{{\"".to_owned(),
            Lexeme::PrintEnd => "\"}}\"".to_owned(),
            Lexeme::Name(name) => format!("{name:?}"),
            Lexeme::Text(_) => "a string".to_owned(),
            Lexeme::Int(_) | Lexeme::Float(_) => "a number".to_owned(),
            Lexeme::Operator(operator) => format!("{operator:?}"),
            Lexeme::End => "the end of the template".to_owned(),
        };
        RenderError::syntax(format_args!("unexpected {found}, expected {expected}"), self.line())
    }

    /// Charges one more node of the tree.
    fn node(&mut self) -> Try<()> {
        self.held.push(MemoryCharge::new(NODE_BYTES)?);
        Ok(())
    }

    /// Parses statements up to a block with one of these names, which is returned; without names, up to the end.
    fn body(&mut self, ends: &[&str]) -> Try<(Body, &'s str)> {
        let _level = enter_level()?;
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let action = match self.next()? {
                Lexeme::Data(data) => Action::Write(TemplateText::new(data)?),
                Lexeme::PrintBegin => {
                    let printed = self.tuple(true, &[])?;
                    self.expect_end(&Lexeme::PrintEnd)?;
                    Action::Print(printed)
                }
                Lexeme::End if ends.is_empty() => return Ok((body, "")),
                Lexeme::End => {
                    let what = format!("the template ends inside a block: missing {:?}", ends[ends.len() - 1]);
                    return Err(RenderError::syntax(what, line));
                }
                _ => {
                    let name = self.name()?;
                    if ends.contains(&name) {
                        return Ok((body, name));
                    }
                    self.statement(name, line)?
                }
            };
            self.node()?;
            body.push(Statement { line, action });
        }
    }

    /// Parses the rest of a block after the opening tag's expressions, its end tag included.
    fn block(&mut self, end: &str) -> Try<Body> {
        self.expect_end(&Lexeme::BlockEnd)?;
        let (body, _) = self.body(&[end])?;
        self.expect_end(&Lexeme::BlockEnd)?;
        Ok(body)
    }

    fn statement(&mut self, name: &str, line: u32) -> Try<Action> {
        let simple = match name {
            "if" => return self.if_block(),
            "for" => return self.for_block(),
            "set" => return self.set(),
            "macro" => return self.macro_block(),
            "call" => return self.call_block(line),
            "filter" => {
                let steps = self.filter_chain()?;
                return Ok(Action::FilterBlock(steps, self.block("endfilter")?));
            }
            "with" => return self.with_block(),
            // Marks the model's own words, for training.
            "generation" => return Ok(Action::With(Vec::new(), self.block("endgeneration")?)),
            "block" => {
                self.name()?;
                while let Lexeme::Name("scoped" | "required") = self.current.0 {
                    self.next()?;
                }
                let body = self.block_named("endblock")?;
                return Ok(Action::With(Vec::new(), body));
            }
            "do" => Action::Do(self.tuple(true, &[])?),
            "print" => Action::Print(self.tuple(true, &[])?),
            "break" | "continue" if self.loops == 0 => {
                return Err(RenderError::syntax(format_args!("{name} outside of a loop"), line));
            }
            "break" => Action::Break,
            "continue" => Action::Continue,
            "include" | "import" | "from" | "extends" => {
                let what = format!("{name:?} is not supported: there are no other templates");
                return Err(RenderError::syntax(what, line));
            }
            other => return Err(RenderError::syntax(format_args!("unknown tag {other:?}"), line)),
        };
        self.expect_end(&Lexeme::BlockEnd)?;
        Ok(simple)
    }

    /// As [`Parser::block`]; the end tag may repeat the block's name.
    fn block_named(&mut self, end: &str) -> Try<Body> {
        self.expect_end(&Lexeme::BlockEnd)?;
        let (body, _) = self.body(&[end])?;
        if let Lexeme::Name(_) = self.current.0 {
            self.next()?;
        }
        self.expect_end(&Lexeme::BlockEnd)?;
        Ok(body)
    }

    fn if_block(&mut self) -> Try<Action> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple(false, &[])?;
            self.expect_end(&Lexeme::BlockEnd)?;
            let (body, end) = self.body(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            match end {
                "elif" => self.node()?,
                "else" => return Ok(Action::If(branches, self.block("endif")?)),
                _ => {
                    self.expect_end(&Lexeme::BlockEnd)?;
                    return Ok(Action::If(branches, Vec::new()));
                }
            }
        }
    }

    fn for_block(&mut self) -> Try<Action> {
        let target = self.target(&["in"])?;
        if !self.skip_name("in")? {
            return Err(self.unexpected("\"in\""));
        }
        let items = self.tuple(false, &["recursive"])?;
        let filter = if self.skip_name("if")? {
            Some(self.expression()?)
        } else {
            None
        };
        let recursive = self.skip_name("recursive")?;
        self.expect_end(&Lexeme::BlockEnd)?;
        self.loops += 1;
        let (body, end) = self.body(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = match end {
            "else" => self.block("endfor")?,
            _ => {
                self.expect_end(&Lexeme::BlockEnd)?;
                Vec::new()
            }
        };
        Ok(Action::For(Rc::new(ForLoop {
            target,
            items,
            filter,
            recursive,
            body,
            otherwise,
        })))
    }

    fn set(&mut self) -> Try<Action> {
        let target = match self.ahead()? {
            Lexeme::Operator(".") => {
                let namespace = self.text_name()?;
                self.next()?;
                AssignTarget::Attribute(namespace, self.text_name()?)
            }
            _ => self.target(&[])?,
        };
        if self.skip("=")? {
            let value = self.tuple(true, &[])?;
            self.expect_end(&Lexeme::BlockEnd)?;
            return Ok(Action::Set(target, value));
        }
        let steps = if self.skip("|")? {
            self.filter_chain()?
        } else {
            Vec::new()
        };
        Ok(Action::SetBlock(target, steps, self.block("endset")?))
    }

    fn with_block(&mut self) -> Try<Action> {
        let mut assignments = Vec::new();
        while self.current.0 != Lexeme::BlockEnd {
            if !assignments.is_empty() {
                self.expect(",")?;
            }
            let target = self.single_target()?;
            self.expect("=")?;
            assignments.push((target, self.expression()?));
        }
        Ok(Action::With(assignments, self.block("endwith")?))
    }

    /// Parses the parameters of a macro, from the bracket on.
    fn parameters(&mut self) -> Try<Vec<(TemplateText, Option<TemplateExpression>)>> {
        let mut parameters: Vec<(TemplateText, Option<TemplateExpression>)> = Vec::new();
        self.expect("(")?;
        while !self.is(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.text_name()?;
            let default = if self.skip("=")? {
                Some(self.expression()?)
            } else {
                None
            };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some()) {
                let what = "a parameter without a default follows one with a default";
                return Err(RenderError::syntax(what, self.line()));
            }
            self.node()?;
            parameters.push((name, default));
        }
        self.expect(")")?;
        Ok(parameters)
    }

    /// Parses a macro from behind its name on.
    fn macro_source(
        &mut self,
        name: TemplateText,
        parameters: Vec<(TemplateText, Option<TemplateExpression>)>,
        end: &str,
    ) -> Try<Rc<MacroSource>> {
        let outer = std::mem::take(&mut self.uses);
        let loops = std::mem::take(&mut self.loops);
        let body = self.block_named(end)?;
        self.loops = loops;
        let uses = self.uses;
        self.uses = outer.or(uses);
        Ok(Rc::new(MacroSource {
            name,
            parameters,
            body,
            uses,
        }))
    }

    fn macro_block(&mut self) -> Try<Action> {
        let name = self.text_name()?;
        let parameters = self.parameters()?;
        Ok(Action::Macro(self.macro_source(name, parameters, "endmacro")?))
    }

    fn call_block(&mut self, line: u32) -> Try<Action> {
        let parameters = if self.is("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        match &call {
            TemplateExpression::Steps(_, steps)
                if steps
                    .last()
                    .is_some_and(|step| matches!(step.action, PostfixAction::Call(_))) => {}
            _ => return Err(RenderError::syntax("a call block without a call", line)),
        }
        let caller = self.macro_source(TemplateText::new("caller")?, parameters, "endcall")?;
        Ok(Action::Call(call, caller))
    }

    /// Parses an assignment target: one name or several.
    fn target(&mut self, ends: &[&str]) -> Try<AssignTarget> {
        let first = self.single_target()?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.skip(",")? {
            let ended = matches!(self.current.0, Lexeme::Name(name) if ends.contains(&name));
            if ended || self.is("=") || self.is(")") || self.current.0 == Lexeme::BlockEnd {
                break;
            }
            targets.push(self.single_target()?);
        }
        Ok(AssignTarget::Tuple(targets))
    }

    fn single_target(&mut self) -> Try<AssignTarget> {
        let _level = enter_level()?;
        self.node()?;
        if self.skip("(")? {
            let target = self.target(&[])?;
            self.expect(")")?;
            return Ok(target);
        }
        match self.current.0 {
            Lexeme::Name("true" | "True" | "false" | "False" | "none" | "None") => {
                Err(RenderError::syntax("cannot assign to a constant", self.line()))
            }
            _ => Ok(AssignTarget::Name(self.text_name()?)),
        }
    }
}
