//! Evaluates expressions.

use std::rc::Rc;

use super::budget::{BoundedText, enter_level, spend, spend_on_bytes};
use super::calls::{CallArguments, Callable};
use super::counters::Cycler;
use super::error::{RenderError, Try};
use super::operators;
use super::render::{Renderer, Variables, describe};
use super::syntax::{ArgumentList, Postfix, PostfixAction, Sign, TemplateExpression};
use super::value::{Dict, DictKey, ItemsBuilder, TemplateText, Value};
use super::{compare, filters, loops, methods, predicates, print};

impl Renderer {
    pub fn evaluate(&mut self, expression: &TemplateExpression, variables: &Rc<Variables>) -> Try<Value> {
        let _level = enter_level()?;
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
                Ok(dict.into_value())
            }
            TemplateExpression::Unary(signs, operand) => {
                let mut value = self.evaluate(operand, variables)?;
                for sign in signs.iter().rev() {
                    spend(1)?;
                    value = match sign {
                        Sign::Not => Value::Bool(!value.is_true()),
                        sign => operators::signed(&value, *sign).map_err(|error| with_name(error, operand))?,
                    };
                }
                Ok(value)
            }
            TemplateExpression::Binary(first, others) => {
                let mut value = self.evaluate(first, variables)?;
                let mut named = &**first;
                for (operator, operand) in others {
                    let right = self.evaluate(operand, variables)?;
                    if !matches!(value, Value::Undefined) {
                        named = operand;
                    }
                    value = operators::binary(&value, *operator, &right).map_err(|error| with_name(error, named))?;
                }
                Ok(value)
            }
            TemplateExpression::Concatenation(parts) => {
                let mut out = BoundedText::new();
                for part in parts {
                    let value = self.evaluate(part, variables)?;
                    print::write(&value, &mut out)?;
                }
                Value::built(out)
            }
            TemplateExpression::Comparison(first, others) => {
                let mut left = self.evaluate(first, variables)?;
                for (relation, operand) in others {
                    let right = self.evaluate(operand, variables)?;
                    if !compare::holds(&left, *relation, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            TemplateExpression::And(values) => self.decide(values, false, variables),
            TemplateExpression::Or(values) => self.decide(values, true, variables),
            TemplateExpression::Conditional(parts) => {
                let (value, condition, otherwise) = &**parts;
                match (self.evaluate(condition, variables)?.is_true(), otherwise) {
                    (true, _) => self.evaluate(value, variables),
                    (false, Some(otherwise)) => self.evaluate(otherwise, variables),
                    (false, None) => Ok(Value::Undefined),
                }
            }
            TemplateExpression::Steps(base, steps) => {
                if let Some((value, done)) = self.change_variable(base, steps, variables)? {
                    return self.apply_postfixes(value, &steps[done..], &String::new, variables);
                }
                let value = self.evaluate(base, variables)?;
                self.apply_postfixes(value, steps, &|| describe(base), variables)
            }
        }
    }

    fn gather(&mut self, items: &[TemplateExpression], variables: &Rc<Variables>) -> Try<ItemsBuilder> {
        ItemsBuilder::of(items.iter().map(|item| self.evaluate(item, variables)))
    }

    /// Returns the first value whose truth is `wanted`, or the last one (`and`, `or`).
    fn decide(&mut self, values: &[TemplateExpression], wanted: bool, variables: &Rc<Variables>) -> Try<Value> {
        let mut decided = Value::Undefined;
        for value in values {
            decided = self.evaluate(value, variables)?;
            if decided.is_true() == wanted {
                break;
            }
        }
        Ok(decided)
    }

    /// Applies attributes, items, calls, filters and tests to a value. `name` returns the template's name of the
    /// value, for errors.
    pub fn apply_postfixes(
        &mut self,
        mut value: Value,
        steps: &[Postfix],
        name: &dyn Fn() -> String,
        variables: &Rc<Variables>,
    ) -> Try<Value> {
        for (index, step) in steps.iter().enumerate() {
            spend(1)?;
            let known = matches!(step.action, PostfixAction::Filter(..) | PostfixAction::Test(..));
            if !known && matches!(value, Value::Undefined) {
                let mut name = name();
                for before in &steps[..index] {
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
            value = match self.apply_postfix(value, &step.action, variables) {
                Ok(value) => value,
                Err(error) => return Err(error.at(step.line)),
            };
        }
        Ok(value)
    }

    fn apply_postfix(&mut self, value: Value, step: &PostfixAction, variables: &Rc<Variables>) -> Try<Value> {
        match step {
            PostfixAction::Attribute(name) => attribute(&value, name),
            PostfixAction::Item(key) => {
                let key = self.evaluate(key, variables)?;
                item(&value, &key)
            }
            PostfixAction::Slice(bounds) => {
                let mut evaluated = [const { None }; 3];
                for (slot, bound) in evaluated.iter_mut().zip(bounds) {
                    if let Some(bound) = bound {
                        *slot = Some(self.evaluate(bound, variables)?);
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
                Ok(Value::Bool(predicates::holds(name, &value, arguments)? != *negated))
            }
        }
    }

    pub fn arguments(&mut self, given: &ArgumentList, variables: &Rc<Variables>) -> Try<CallArguments> {
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
            let Value::Dict(dict) = self.evaluate(spread, variables)? else {
                return Err(RenderError::invalid("the value after ** must be a dictionary"));
            };
            for (name, value) in dict.entries() {
                let Value::Text(name) = name else {
                    return Err(RenderError::invalid("argument names must be strings"));
                };
                arguments.named.push((name.clone(), value.clone()));
            }
        }
        arguments.count()?;
        Ok(arguments)
    }
}

/// Adds the name of the undefined value to an error.
fn with_name(error: RenderError, expression: &TemplateExpression) -> RenderError {
    if error.is_undefined() {
        RenderError::undefined(&describe(expression))
    } else {
        error
    }
}

/// `value.name`: methods come before keys, as in Jinja.
pub(super) fn attribute(value: &Value, name: &TemplateText) -> Try<Value> {
    spend_on_bytes(name.len())?;
    if let Value::Undefined = value {
        return Err(RenderError::undefined(""));
    }
    if methods::has(value, name) {
        return Ok(Value::Callable(Rc::new(Callable::Method(value.clone(), name.clone()))));
    }
    Ok(match value {
        Value::Dict(dict) => dict.get_text(name).cloned(),
        Value::Namespace(namespace) => namespace.0.borrow().get_text(name).cloned(),
        Value::Loop(state) => state.attribute(name).or_else(|| loops::method(state, name)),
        // The names that Jinja gives to the pairs of `groupby`.
        Value::Tuple(items) if items.len() == 2 => match &**name {
            "grouper" => Some(items[0].clone()),
            "list" => Some(items[1].clone()),
            _ => None,
        },
        Value::Callable(callable) => match (&**callable, &**name) {
            (Callable::Macro(source, _), "name") => Some(Value::Text(source.name.clone())),
            (Callable::Cycler(cycler), "current") => Some(cycler.current()),
            (Callable::Cycler(_), method) if Cycler::has_method(method) => {
                Some(Value::Callable(Rc::new(Callable::Method(value.clone(), name.clone()))))
            }
            _ => None,
        },
        _ => None,
    }
    .unwrap_or_default())
}

/// `value[key]`: keys come before methods.
pub(super) fn item(value: &Value, key: &Value) -> Try<Value> {
    spend(1)?;
    if let (Value::List(items) | Value::Tuple(items), Some(index)) = (value, key.as_int()) {
        return Ok(resolve_index(index, items.len())
            .map(|at| items[at].clone())
            .unwrap_or_default());
    }
    if let (Value::Text(text), Some(index)) = (value, key.as_int()) {
        let mut one = [0; 4];
        let found = resolve_index(index, value.length()?).and_then(|at| text.chars().nth(at));
        return found.map_or(Ok(Value::Undefined), |c| Value::text(&*c.encode_utf8(&mut one)));
    }
    if let Value::Dict(dict) = value
        && let Ok(key) = DictKey::of(key)
        && let Some(found) = dict.get(&key)
    {
        return Ok(found.clone());
    }
    match key {
        Value::Text(name) if !matches!(value, Value::Dict(_)) || methods::has(value, name) => attribute(value, name),
        _ if matches!(value, Value::Undefined) => Err(RenderError::undefined("")),
        _ => Ok(Value::Undefined),
    }
}

/// Resolves an index, which counts from the end if it is negative.
pub(super) fn resolve_index(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 {
        index.checked_add(length as i128)?
    } else {
        index
    };
    usize::try_from(index).ok().filter(|at| *at < length)
}
