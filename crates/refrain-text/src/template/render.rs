//! Executes statements.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::SystemTime;

use super::budget::{BoundedText, MemoryCharge, enter_level, spend, spend_on_bytes};
use super::calls::{Callable, GlobalFunction};
use super::error::{RenderError, Try};
use super::print;
use super::syntax::{Action, AssignTarget, Postfix, PostfixAction, Statement, TemplateExpression};
use super::value::{Dict, Namespace, TemplateText, Value};

/// Memory charged for a variable beside its value, in bytes.
const VARIABLE_BYTES: usize = 256;

/// Memory charged for a namespace, in bytes.
const NAMESPACE_BYTES: usize = 320;

/// The variables of a block, and those of the enclosing blocks.
#[derive(Debug, Default)]
pub(super) struct Variables {
    own: RefCell<HashMap<TemplateText, (Value, MemoryCharge)>>,
    around: Option<Rc<Variables>>,
}

impl Variables {
    /// An empty scope inside `parent`.
    pub fn child_of(around: &Rc<Variables>) -> Rc<Self> {
        Rc::new(Variables {
            around: Some(around.clone()),
            ..Variables::default()
        })
    }

    pub fn set(&self, name: &TemplateText, value: Value) -> Try<()> {
        spend_on_bytes(name.len())?;
        let mut own = self.own.borrow_mut();
        match own.get_mut(name) {
            Some((slot, _)) => *slot = value,
            None => {
                own.insert(name.clone(), (value, MemoryCharge::new(VARIABLE_BYTES)?));
            }
        }
        Ok(())
    }

    /// Replaces the variable of this name in the innermost block that has one.
    pub fn replace(&self, name: &TemplateText, value: Value) -> Try<()> {
        let mut block = Some(self);
        while let Some(variables) = block {
            spend_on_bytes(name.len())?;
            if let Some((slot, _)) = variables.own.borrow_mut().get_mut(name) {
                *slot = value;
                return Ok(());
            }
            block = variables.around.as_deref();
        }
        Ok(())
    }

    /// Returns the variable of this name in the innermost block that has one.
    pub fn get(&self, name: &TemplateText) -> Try<Option<Value>> {
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
    Normal,
    Break,
    Continue,
}

/// One rendering.
pub(super) struct Renderer {
    /// The variables of the template itself.
    pub root: Rc<Variables>,
    /// All namespaces. They can form cycles, so they are emptied at the end.
    namespaces: Vec<(Rc<Namespace>, MemoryCharge)>,
    /// The time that `strftime_now` uses instead of the present.
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
    /// Starts with the built-in functions and these variables.
    pub fn new(variables: Vec<(TemplateText, Value)>, time: Option<SystemTime>) -> Try<Self> {
        let globals = Rc::new(Variables::default());
        for (name, function) in GlobalFunction::ALL {
            let function = Value::Callable(Rc::new(Callable::GlobalFunction(function)));
            globals.set(&TemplateText::new(name)?, function)?;
        }
        for (name, value) in variables {
            globals.set(&name, value)?;
        }
        Ok(Renderer {
            root: Variables::child_of(&globals),
            namespaces: Vec::new(),
            time,
        })
    }

    /// Creates a namespace, which lives until the end of the rendering.
    pub fn namespace(&mut self, variables: Dict) -> Try<Value> {
        let namespace = Rc::new(Namespace(variables.into()));
        self.namespaces
            .push((namespace.clone(), MemoryCharge::new(NAMESPACE_BYTES)?));
        Ok(Value::Namespace(namespace))
    }

    /// Executes a body in the block that has `variables`.
    pub fn run(&mut self, body: &[Statement], variables: &Rc<Variables>, out: &mut BoundedText) -> Try<Flow> {
        let _level = enter_level()?;
        for statement in body {
            spend(1)?;
            match self.execute(&statement.action, variables, out) {
                Ok(Flow::Normal) => {}
                Ok(left) => return Ok(left),
                Err(error) => return Err(error.at(statement.line)),
            }
        }
        Ok(Flow::Normal)
    }

    fn execute(&mut self, action: &Action, variables: &Rc<Variables>, out: &mut BoundedText) -> Try<Flow> {
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
                let inner = Variables::child_of(variables);
                for (target, expression) in assignments {
                    let value = self.evaluate(expression, variables)?;
                    self.assign(target, value, &inner)?;
                }
                return self.run(body, &inner, out);
            }
            Action::Macro(source) => {
                let callable = Callable::Macro(source.clone(), Rc::downgrade(variables));
                variables.set(&source.name, Value::Callable(Rc::new(callable)))?;
            }
            Action::Call(call, source) => {
                let caller = Callable::Macro(source.clone(), Rc::downgrade(variables));
                let value = self.call_with(call, Value::Callable(Rc::new(caller)), variables)?;
                print::write(&value, out)?;
            }
            Action::Do(expression) => drop(self.evaluate(expression, variables)?),
            Action::Break => return Ok(Flow::Break),
            Action::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Normal)
    }

    /// Renders a body and applies filters to the result.
    fn capture(&mut self, steps: &[Postfix], body: &[Statement], variables: &Rc<Variables>) -> Try<(Value, Flow)> {
        let mut out = BoundedText::new();
        let flow = self.run(body, &Variables::child_of(variables), &mut out)?;
        let text = Value::built(out)?;
        Ok((self.apply_postfixes(text, steps, &|| String::new(), variables)?, flow))
    }

    /// Evaluates the call of a call block, with its body as `caller`.
    fn call_with(&mut self, call: &TemplateExpression, caller: Value, variables: &Rc<Variables>) -> Try<Value> {
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
        let callee = self.apply_postfixes(value, before, &|| describe(base), variables)?;
        let mut arguments = self.arguments(given, variables)?;
        arguments.named.push((TemplateText::new("caller")?, caller));
        self.call(&callee, arguments).map_err(|error| error.at(*line))
    }

    pub fn assign(&mut self, target: &AssignTarget, value: Value, variables: &Rc<Variables>) -> Try<()> {
        match target {
            AssignTarget::Name(name) => variables.set(name, value),
            AssignTarget::Attribute(name, attribute) => match variables.get(name)? {
                Some(Value::Namespace(namespace)) => {
                    let mut held = namespace.0.borrow_mut();
                    held.insert(Value::Text(attribute.clone()), value)
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
}

/// Returns the name of a value if the expression is a plain name, else an empty string.
pub(super) fn describe(expression: &TemplateExpression) -> String {
    match expression {
        TemplateExpression::Name(name) => name.to_string(),
        _ => String::new(),
    }
}
