//! Expressions evaluated.

use std::rc::Rc;

use super::budget::{BoundedText, deeper, spend, spend_on_bytes};
use super::calls::{CallArguments, Callable};
use super::failure::{Attempt, RenderError};
use super::operators;
use super::render::{Renderer, Variables, describe};
use super::syntax::{ArgumentList, Postfix, PostfixAction, Sign, TemplateExpression};
use super::value::{Datum, Dict, DictKey, Gathered, TemplateText};
use super::{compare, filters, loops, methods, print, tests};

impl Renderer {
    pub fn evaluate(&mut self, expression: &TemplateExpression, variables: &Rc<Variables>) -> Attempt<Datum> {
        let _level = deeper()?;
        spend(1)?;
        match expression {
            TemplateExpression::Constant(value) => Ok(value.clone()),
            TemplateExpression::Name(name) => Ok(variables.get(name)?.unwrap_or_default()),
            TemplateExpression::List(items) => Ok(self.gather(items, variables)?.list()),
            TemplateExpression::Tuple(items) => Ok(self.gather(items, variables)?.tuple()),
            TemplateExpression::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    dict.insert(self.evaluate(key, variables)?, self.evaluate(value, variables)?)?;
                }
                Ok(dict.datum())
            }
            TemplateExpression::Unary(signs, operand) => {
                let mut value = self.evaluate(operand, variables)?;
                for sign in signs.iter().rev() {
                    spend(1)?;
                    value = match sign {
                        Sign::Not => Datum::Bool(!value.is_true()),
                        sign => operators::signed(&value, *sign).map_err(|error| name_it(error, operand))?,
                    };
                }
                Ok(value)
            }
            TemplateExpression::Binary(first, others) => {
                let mut value = self.evaluate(first, variables)?;
                let mut named = &**first;
                for (operator, operand) in others {
                    let right = self.evaluate(operand, variables)?;
                    if !matches!(value, Datum::Undefined) {
                        named = operand;
                    }
                    value = operators::binary(&value, *operator, &right).map_err(|error| name_it(error, named))?;
                }
                Ok(value)
            }
            TemplateExpression::Concatenation(parts) => {
                let mut out = BoundedText::new();
                for part in parts {
                    let value = self.evaluate(part, variables)?;
                    print::write(&value, &mut out)?;
                }
                Datum::built(out)
            }
            TemplateExpression::Comparison(first, others) => {
                let mut left = self.evaluate(first, variables)?;
                for (relation, operand) in others {
                    let right = self.evaluate(operand, variables)?;
                    if !compare::holds(&left, *relation, &right)? {
                        return Ok(Datum::Bool(false));
                    }
                    left = right;
                }
                Ok(Datum::Bool(true))
            }
            TemplateExpression::And(values) => self.decide(values, false, variables),
            TemplateExpression::Or(values) => self.decide(values, true, variables),
            TemplateExpression::Conditional(parts) => {
                let (value, condition, otherwise) = &**parts;
                match (self.evaluate(condition, variables)?.is_true(), otherwise) {
                    (true, _) => self.evaluate(value, variables),
                    (false, Some(otherwise)) => self.evaluate(otherwise, variables),
                    (false, None) => Ok(Datum::Undefined),
                }
            }
            TemplateExpression::Steps(base, steps) => {
                let value = self.evaluate(base, variables)?;
                self.take_steps(value, steps, &|| describe(base), variables)
            }
        }
    }

    fn gather(&mut self, items: &[TemplateExpression], variables: &Rc<Variables>) -> Attempt<Gathered> {
        Gathered::of(items.iter().map(|item| self.evaluate(item, variables)))
    }

    /// The first of the values that is as true as `wanted`, or the last one.
    fn decide(&mut self, values: &[TemplateExpression], wanted: bool, variables: &Rc<Variables>) -> Attempt<Datum> {
        let mut decided = Datum::Undefined;
        for value in values {
            decided = self.evaluate(value, variables)?;
            if decided.is_true() == wanted {
                break;
            }
        }
        Ok(decided)
    }

    /// What comes of a value by attributes, items, calls, filters and tests. `name` is what the template calls the value.
    pub fn take_steps(
        &mut self,
        mut value: Datum,
        steps: &[Postfix],
        name: &dyn Fn() -> String,
        variables: &Rc<Variables>,
    ) -> Attempt<Datum> {
        for (place, step) in steps.iter().enumerate() {
            spend(1)?;
            let known = matches!(step.action, PostfixAction::Filter(..) | PostfixAction::Test(..));
            if !known && matches!(value, Datum::Undefined) {
                let mut name = name();
                for before in &steps[..place] {
                    match &before.action {
                        PostfixAction::Attribute(attribute) if !name.is_empty() => {
                            name.push('.');
                            name.push_str(attribute);
                        }
                        _ => name.clear(),
                    }
                }
                return Err(RenderError::undefined(&name).at(step.line));
            }
            value = match self.take_step(value, &step.action, variables) {
                Ok(value) => value,
                Err(error) => return Err(error.at(step.line)),
            };
        }
        Ok(value)
    }

    fn take_step(&mut self, value: Datum, step: &PostfixAction, variables: &Rc<Variables>) -> Attempt<Datum> {
        match step {
            PostfixAction::Attribute(name) => attribute(&value, name),
            PostfixAction::Item(key) => {
                let key = self.evaluate(key, variables)?;
                item(&value, &key)
            }
            PostfixAction::Slice(bounds) => {
                let mut evaluated = [const { None }; 3];
                for (place, bound) in evaluated.iter_mut().zip(bounds) {
                    if let Some(bound) = bound {
                        *place = Some(self.evaluate(bound, variables)?);
                    }
                }
                operators::slice(&value, evaluated)
            }
            PostfixAction::Call(given) => {
                let arguments = self.arguments(given, variables)?;
                self.call(&value, arguments)
            }
            PostfixAction::Filter(name, given) => {
                let arguments = self.arguments(given, variables)?;
                filters::apply(name, value, arguments)
            }
            PostfixAction::Test(name, given, negated) => {
                let arguments = self.arguments(given, variables)?;
                Ok(Datum::Bool(tests::holds(name, &value, arguments)? != *negated))
            }
        }
    }

    pub fn arguments(&mut self, given: &ArgumentList, variables: &Rc<Variables>) -> Attempt<CallArguments> {
        let mut arguments = CallArguments::default();
        for value in &given.positional {
            arguments.positional.push(self.evaluate(value, variables)?);
        }
        if let Some(spread) = &given.spread {
            let spread = self.evaluate(spread, variables)?.iterate()?;
            arguments.positional.extend(spread.iter().cloned());
        }
        for (name, value) in &given.named {
            arguments.named.push((name.clone(), self.evaluate(value, variables)?));
        }
        if let Some(spread) = &given.spread_named {
            let Datum::Dict(dict) = self.evaluate(spread, variables)? else {
                return Err(RenderError::invalid("what stands behind ** must be a dictionary"));
            };
            for (name, value) in dict.entries() {
                let Datum::Text(name) = name else {
                    return Err(RenderError::invalid("names of arguments must be strings"));
                };
                arguments.named.push((name.clone(), value.clone()));
            }
        }
        arguments.count()?;
        Ok(arguments)
    }
}

/// An error about something undefined, with its name.
fn name_it(error: RenderError, expression: &TemplateExpression) -> RenderError {
    if error.is_undefined() {
        RenderError::undefined(&describe(expression))
    } else {
        error
    }
}

/// `value.name`: methods before keys, as in Jinja.
pub(super) fn attribute(value: &Datum, name: &TemplateText) -> Attempt<Datum> {
    spend_on_bytes(name.len())?;
    if let Datum::Undefined = value {
        return Err(RenderError::undefined(""));
    }
    if methods::has(value, name) {
        return Ok(Datum::Callable(Rc::new(Callable::Method(value.clone(), name.clone()))));
    }
    Ok(match value {
        Datum::Dict(dict) => dict.get_text(name).cloned(),
        Datum::Namespace(namespace) => namespace.0.borrow().get_text(name).cloned(),
        Datum::Loop(state) => state.attribute(name).or_else(|| loops::method(state, name)),
        // The names that Jinja gives to the pairs of `groupby`.
        Datum::Tuple(items) if items.len() == 2 => match &**name {
            "grouper" => Some(items[0].clone()),
            "list" => Some(items[1].clone()),
            _ => None,
        },
        Datum::Callable(callable) => match (&**callable, &**name) {
            (Callable::Macro(source, _), "name") => Some(Datum::Text(source.name.clone())),
            _ => None,
        },
        _ => None,
    }
    .unwrap_or_default())
}

/// `value[key]`: keys before methods.
pub(super) fn item(value: &Datum, key: &Datum) -> Attempt<Datum> {
    spend(1)?;
    if let (Datum::List(items) | Datum::Tuple(items), Some(index)) = (value, key.as_int()) {
        return Ok(place(index, items.len())
            .map(|at| items[at].clone())
            .unwrap_or_default());
    }
    if let (Datum::Text(text), Some(index)) = (value, key.as_int()) {
        let mut one = [0; 4];
        let found = place(index, value.length()?).and_then(|at| text.chars().nth(at));
        return found.map_or(Ok(Datum::Undefined), |c| Datum::text(&*c.encode_utf8(&mut one)));
    }
    if let Datum::Dict(dict) = value
        && let Ok(key) = DictKey::of(key)
        && let Some(found) = dict.get(&key)
    {
        return Ok(found.clone());
    }
    match key {
        Datum::Text(name) if !matches!(value, Datum::Dict(_)) || methods::has(value, name) => attribute(value, name),
        _ if matches!(value, Datum::Undefined) => Err(RenderError::undefined("")),
        _ => Ok(Datum::Undefined),
    }
}

/// The place that an index means, which counts from the end if it is negative.
fn place(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 {
        index.checked_add(length as i128)?
    } else {
        index
    };
    usize::try_from(index).ok().filter(|at| *at < length)
}
