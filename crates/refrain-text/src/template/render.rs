//! Statements carried out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::SystemTime;

use super::budget::{BoundedText, Held, deeper, spend, spend_on_bytes};
use super::calls::{Callable, GlobalFunction};
use super::failure::{Attempt, RenderError};
use super::print;
use super::syntax::{Action, AssignTarget, Postfix, PostfixAction, Statement, TemplateExpression};
use super::value::{Datum, Dict, Namespace, TemplateText};

/// What a variable takes beside its value, in bytes.
const VARIABLE: usize = 256;

/// What a namespace takes, in bytes.
const NAMESPACE: usize = 320;

/// The longest format of a time, in bytes.
const MAX_TIME_FORMAT: usize = 1000;

/// The variables of a block, and those around it.
#[derive(Debug, Default)]
pub(super) struct Variables {
    own: RefCell<HashMap<TemplateText, (Datum, Held)>>,
    around: Option<Rc<Variables>>,
}

impl Variables {
    /// None yet, within a block that has these.
    pub fn within(around: &Rc<Variables>) -> Rc<Self> {
        Rc::new(Variables {
            around: Some(around.clone()),
            ..Variables::default()
        })
    }

    pub fn set(&self, name: &TemplateText, value: Datum) -> Attempt<()> {
        spend_on_bytes(name.len())?;
        let mut own = self.own.borrow_mut();
        match own.get_mut(name) {
            Some((place, _)) => *place = value,
            None => {
                own.insert(name.clone(), (value, Held::new(VARIABLE)?));
            }
        }
        Ok(())
    }

    /// The variable of this name, of the nearest block that has one.
    pub fn get(&self, name: &TemplateText) -> Attempt<Option<Datum>> {
        let mut block = Some(self);
        while let Some(variables) = block {
            spend_on_bytes(name.len())?;
            if let Some((value, _)) = variables.own.borrow().get(name) {
                return Ok(Some(value.clone()));
            }
            block = variables.around.as_deref();
        }
        Ok(None)
    }
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Flow {
    Through,
    Break,
    Continue,
}

/// One rendering.
pub(super) struct Renderer {
    /// The variables of the template itself.
    pub root: Rc<Variables>,
    /// All there are: they can contain each other, so they are emptied at the end.
    namespaces: Vec<(Rc<Namespace>, Held)>,
    /// What `strftime_now` takes for now, if not the present.
    pub time: Option<SystemTime>,
}

impl Drop for Renderer {
    fn drop(&mut self) {
        for (namespace, _) in &self.namespaces {
            namespace.0.take();
        }
    }
}

impl Renderer {
    /// With the functions that every template knows, and these variables.
    pub fn new(variables: Vec<(TemplateText, Datum)>, time: Option<SystemTime>) -> Attempt<Self> {
        let globals = Rc::new(Variables::default());
        for (name, function) in GlobalFunction::ALL {
            let function = Datum::Callable(Rc::new(Callable::GlobalFunction(function)));
            globals.set(&TemplateText::new(name)?, function)?;
        }
        for (name, value) in variables {
            globals.set(&name, value)?;
        }
        Ok(Renderer {
            root: Variables::within(&globals),
            namespaces: Vec::new(),
            time,
        })
    }

    /// A new namespace, which lives until the end of the rendering.
    pub fn namespace(&mut self, variables: Dict) -> Attempt<Datum> {
        let namespace = Rc::new(Namespace(variables.into()));
        self.namespaces.push((namespace.clone(), Held::new(NAMESPACE)?));
        Ok(Datum::Namespace(namespace))
    }

    /// Carry out a body in the block that has `variables`.
    pub fn run(&mut self, body: &[Statement], variables: &Rc<Variables>, out: &mut BoundedText) -> Attempt<Flow> {
        let _level = deeper()?;
        for statement in body {
            spend(1)?;
            match self.carry_out(&statement.action, variables, out) {
                Ok(Flow::Through) => {}
                Ok(left) => return Ok(left),
                Err(error) => return Err(error.at(statement.line)),
            }
        }
        Ok(Flow::Through)
    }

    fn carry_out(&mut self, action: &Action, variables: &Rc<Variables>, out: &mut BoundedText) -> Attempt<Flow> {
        match action {
            Action::Write(text) => out.push(text)?,
            Action::Print(expression) => {
                let value = self.evaluate(expression, variables)?;
                print::write(&value, out)?;
            }
            Action::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.evaluate(condition, variables)?.is_true() {
                        return self.run(body, variables, out);
                    }
                }
                return self.run(otherwise, variables, out);
            }
            Action::For(source) => self.run_for(source, variables, out)?,
            Action::Set(target, expression) => {
                let value = self.evaluate(expression, variables)?;
                self.assign(target, value, variables)?;
            }
            Action::SetBlock(target, steps, body) => {
                let (value, flow) = self.capture(steps, body, variables)?;
                self.assign(target, value, variables)?;
                return Ok(flow);
            }
            Action::FilterBlock(steps, body) => {
                let (value, flow) = self.capture(steps, body, variables)?;
                print::write(&value, out)?;
                return Ok(flow);
            }
            Action::With(assignments, body) => {
                let inner = Variables::within(variables);
                for (target, expression) in assignments {
                    let value = self.evaluate(expression, variables)?;
                    self.assign(target, value, &inner)?;
                }
                return self.run(body, &inner, out);
            }
            Action::Macro(source) => {
                let callable = Callable::Macro(source.clone(), Rc::downgrade(variables));
                variables.set(&source.name, Datum::Callable(Rc::new(callable)))?;
            }
            Action::Call(call, source) => {
                let caller = Callable::Macro(source.clone(), Rc::downgrade(variables));
                let value = self.call_with(call, Datum::Callable(Rc::new(caller)), variables)?;
                print::write(&value, out)?;
            }
            Action::Do(expression) => drop(self.evaluate(expression, variables)?),
            Action::Break => return Ok(Flow::Break),
            Action::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Through)
    }

    /// What a body renders, through filters.
    fn capture(&mut self, steps: &[Postfix], body: &[Statement], variables: &Rc<Variables>) -> Attempt<(Datum, Flow)> {
        let mut out = BoundedText::new();
        let flow = self.run(body, &Variables::within(variables), &mut out)?;
        let text = Datum::built(out)?;
        Ok((self.take_steps(text, steps, &|| String::new(), variables)?, flow))
    }

    /// The call of a call block, with its body for `caller`.
    fn call_with(&mut self, call: &TemplateExpression, caller: Datum, variables: &Rc<Variables>) -> Attempt<Datum> {
        let TemplateExpression::Steps(base, steps) = call else {
            return Err(RenderError::invalid("a call block without a call"));
        };
        let Some((
            Postfix {
                action: PostfixAction::Call(given),
                line,
            },
            before,
        )) = steps.split_last()
        else {
            return Err(RenderError::invalid("a call block without a call"));
        };
        let value = self.evaluate(base, variables)?;
        let callee = self.take_steps(value, before, &|| describe(base), variables)?;
        let mut arguments = self.arguments(given, variables)?;
        arguments.named.push((TemplateText::new("caller")?, caller));
        self.call(&callee, arguments).map_err(|error| error.at(*line))
    }

    pub fn assign(&mut self, target: &AssignTarget, value: Datum, variables: &Rc<Variables>) -> Attempt<()> {
        match target {
            AssignTarget::Name(name) => variables.set(name, value),
            AssignTarget::Attribute(name, attribute) => match variables.get(name)? {
                Some(Datum::Namespace(namespace)) => {
                    let mut held = namespace.0.borrow_mut();
                    held.insert(Datum::Text(attribute.clone()), value)
                }
                _ => Err(RenderError::invalid(format!(
                    "cannot assign attribute on non-namespace object {:?}",
                    &**name
                ))),
            },
            AssignTarget::Tuple(targets) => {
                let items = value.iterate()?;
                if items.len() != targets.len() {
                    return Err(RenderError::invalid(format!(
                        "cannot unpack {} values to {} names",
                        items.len(),
                        targets.len()
                    )));
                }
                for (target, item) in targets.iter().zip(items.iter()) {
                    self.assign(target, item.clone(), variables)?;
                }
                Ok(())
            }
        }
    }

    /// The time in a format of C's `strftime`.
    pub fn strftime(&self, format: &str) -> Attempt<BoundedText> {
        let failed = |error: jiff::Error| RenderError::invalid(error);
        let time = jiff::Zoned::try_from(self.time.unwrap_or_else(SystemTime::now)).map_err(failed)?;
        if format.len() > MAX_TIME_FORMAT {
            return Err(RenderError::invalid("absurd format of a time"));
        }
        let mut out = BoundedText::new();
        out.push(&jiff::fmt::strtime::format(format, &time).map_err(failed)?)?;
        Ok(out)
    }
}

/// How the template names a value, if it is a plain name; else nothing.
pub(super) fn describe(expression: &TemplateExpression) -> String {
    match expression {
        TemplateExpression::Name(name) => name.to_string(),
        _ => String::new(),
    }
}
