//! Methods that change a list or a dictionary, such as `append` and `pop`.
//!
//! transformers renders templates in a sandbox that forbids them; llama.cpp allows them, and some of the templates
//! that it publishes need them. Values are immutable here, so a change makes a new value and stores it in the variable
//! that held the old one. Unlike in Python, another variable with the same list keeps the old one: so no value can
//! contain itself.

use std::rc::Rc;

use super::calls::{CallArguments, integer, required};
use super::compare;
use super::error::{RenderError, Try};
use super::evaluate::resolve_index;
use super::methods;
use super::render::{Renderer, Variables};
use super::syntax::{ArgumentList, Postfix, PostfixAction, TemplateExpression};
use super::value::{Dict, DictKey, Items, ItemsBuilder, TemplateText, Value};

/// Methods that change their list.
const OF_LISTS: [&str; 8] = [
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];

/// Methods that change their dictionary.
const OF_DICTS: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];

/// A value after a change, and what the method returns.
type Changed = (Value, Value);

impl Renderer {
    /// Calls a method that changes a variable, or a part of one, if `steps` begin with such a call. Returns its result
    /// and the number of steps done; `None` if there is nothing of the kind.
    pub(super) fn change_variable(
        &mut self,
        base: &TemplateExpression,
        steps: &[Postfix],
        variables: &Rc<Variables>,
    ) -> Try<Option<(Value, usize)>> {
        let TemplateExpression::Name(name) = base else {
            return Ok(None);
        };
        let is_call = |step: &Postfix| matches!(step.action, PostfixAction::Call(_));
        let Some(call) = steps.iter().position(is_call) else {
            return Ok(None);
        };
        let Some((method, arguments, path)) = split(&steps[..=call]) else {
            return Ok(None);
        };
        let Some(value) = variables.get(name)? else {
            return Ok(None);
        };
        let mut keys = Vec::with_capacity(path.len());
        for step in path {
            keys.push(match &step.action {
                PostfixAction::Attribute(name) => Value::Text(name.clone()),
                PostfixAction::Item(key) => self.evaluate(key, variables)?,
                _ => return Ok(None),
            });
        }
        if !is_changeable(&value, &keys, method)? {
            return Ok(None);
        }
        let arguments = self.arguments(arguments, variables)?;
        // The arguments may change it too.
        let value = variables.get(name)?.unwrap_or(value);
        let changed = change_at(&value, &keys, method, arguments);
        let (changed, result) = changed.map_err(|error| error.at(steps[call].line))?;
        variables.replace(name, changed)?;
        Ok(Some((result, call + 1)))
    }
}

/// Splits steps that end with a call into the method, its arguments, and the path to its receiver.
fn split(steps: &[Postfix]) -> Option<(&TemplateText, &ArgumentList, &[Postfix])> {
    let [path @ .., method, call] = steps else {
        return None;
    };
    match (&method.action, &call.action) {
        (PostfixAction::Attribute(method), PostfixAction::Call(arguments)) => {
            let known = OF_LISTS.contains(&&**method) || OF_DICTS.contains(&&**method);
            known.then_some((method, arguments, path))
        }
        _ => None,
    }
}

/// Returns the member of `value` under `key`.
fn member(value: &Value, key: &Value) -> Try<Option<Value>> {
    Ok(match value {
        Value::Namespace(namespace) => namespace.0.borrow().get(&DictKey::of(key)?).cloned(),
        Value::Dict(dict) => dict.get(&DictKey::of(key)?).cloned(),
        Value::List(items) => (key.as_int())
            .and_then(|index| resolve_index(index, items.len()))
            .map(|index| items[index].clone()),
        _ => None,
    })
}

/// Whether the value at the end of a path has this method and may be changed by it.
fn is_changeable(value: &Value, path: &[Value], method: &str) -> Try<bool> {
    let Some((key, rest)) = path.split_first() else {
        return Ok(match value {
            Value::List(_) => OF_LISTS.contains(&method),
            Value::Dict(_) => OF_DICTS.contains(&method),
            _ => false,
        });
    };
    match member(value, key)? {
        Some(member) => is_changeable(&member, rest, method),
        None => Ok(false),
    }
}

/// Changes the value at the end of a path, which [`is_changeable`].
fn change_at(value: &Value, path: &[Value], method: &str, arguments: CallArguments) -> Try<Changed> {
    let Some((key, rest)) = path.split_first() else {
        return match value {
            Value::List(items) => change_list(items, method, arguments),
            Value::Dict(dict) => change_dict(dict, method, arguments),
            _ => Err(RenderError::undefined("")),
        };
    };
    let inner = member(value, key)?.ok_or_else(|| RenderError::undefined(""))?;
    let (changed, result) = change_at(&inner, rest, method, arguments)?;
    let whole = match value {
        Value::Namespace(namespace) => {
            namespace.0.borrow_mut().insert(key.clone(), changed)?;
            value.clone()
        }
        Value::Dict(dict) => {
            let mut copy = dict.copy()?;
            copy.insert(key.clone(), changed)?;
            copy.into_value()
        }
        Value::List(items) => {
            let index = key.as_int().and_then(|index| resolve_index(index, items.len()));
            let item = |(at, item): (usize, &Value)| {
                Ok(if Some(at) == index {
                    changed.clone()
                } else {
                    item.clone()
                })
            };
            ItemsBuilder::of(items.iter().enumerate().map(item))?.list()
        }
        _ => return Err(RenderError::undefined("")),
    };
    Ok((whole, result))
}

fn change_list(items: &Items, method: &str, arguments: CallArguments) -> Try<Changed> {
    let all = || items.iter().cloned().map(Ok);
    let mut result = Value::None;
    let changed = match method {
        "append" => {
            let [item] = arguments.bind(method, ["object"])?;
            ItemsBuilder::of(all().chain([required(item, method)]))?
        }
        "extend" => {
            let [more] = arguments.bind(method, ["iterable"])?;
            let more = required(more, method)?.iterate()?;
            ItemsBuilder::of(all().chain(more.iter().cloned().map(Ok)))?
        }
        "insert" => {
            let [index, item] = arguments.bind(method, ["index", "object"])?;
            let index = integer(index, method)?.unwrap_or_default();
            let (index, item) = (clamped(index, items.len()), required(item, method)?);
            let (before, after) = items.split_at(index);
            let before = before.iter().cloned().map(Ok);
            ItemsBuilder::of(before.chain([Ok(item)]).chain(after.iter().cloned().map(Ok)))?
        }
        "pop" => {
            let [index] = arguments.bind(method, ["index"])?;
            let index = integer(index, method)?.unwrap_or(-1);
            let Some(index) = resolve_index(index, items.len()) else {
                return Err(RenderError::invalid("pop index out of range"));
            };
            result = items[index].clone();
            without(items, index)?
        }
        "remove" => {
            let [wanted] = arguments.bind(method, ["value"])?;
            let wanted = required(wanted, method)?;
            let mut index = 0;
            while !compare::equal(items.get(index).ok_or_else(not_in_list)?, &wanted)? {
                index += 1;
            }
            without(items, index)?
        }
        "sort" => {
            let [reverse] = arguments.bind(method, ["reverse"])?;
            let keyed = items.iter().map(|item| (item.clone(), item.clone())).collect();
            let mut sorted = compare::sort(keyed)?;
            if super::calls::flag(reverse) {
                sorted.reverse();
            }
            ItemsBuilder::of(sorted.into_iter().map(Ok))?
        }
        _ => {
            arguments.none(method)?;
            match method {
                "reverse" => ItemsBuilder::of(items.iter().rev().cloned().map(Ok))?,
                _ => ItemsBuilder::new(),
            }
        }
    };
    Ok((changed.list(), result))
}

fn not_in_list() -> RenderError {
    RenderError::invalid("the value is not in the list")
}

/// Returns the items but one.
fn without(items: &Items, index: usize) -> Try<ItemsBuilder> {
    let others = items.iter().enumerate().filter(|(at, _)| *at != index);
    ItemsBuilder::of(others.map(|(_, item)| Ok(item.clone())))
}

/// Returns where Python's `insert` puts an item: indices beyond the ends are those of the ends.
fn clamped(index: i128, length: usize) -> usize {
    let length_signed = length as i128;
    let index = if index < 0 {
        index.saturating_add(length_signed)
    } else {
        index
    };
    index.clamp(0, length_signed) as usize
}

fn change_dict(dict: &Dict, method: &str, mut arguments: CallArguments) -> Try<Changed> {
    match method {
        "update" => {
            let mut changed = dict.copy()?;
            let given = super::calls::from_pairs(arguments)?;
            for (key, value) in given.entries() {
                changed.insert(key.clone(), value.clone())?;
            }
            Ok((changed.into_value(), Value::None))
        }
        "setdefault" => {
            let [key, default] = arguments.bind(method, ["key", "default"])?;
            let key = required(key, method)?;
            let mut changed = dict.copy()?;
            let value = match dict.get(&DictKey::of(&key)?) {
                Some(value) => value.clone(),
                None => default.unwrap_or(Value::None),
            };
            changed.insert(key, value.clone())?;
            Ok((changed.into_value(), value))
        }
        "pop" => {
            let key = required(arguments.take_first(), method)?;
            let [default] = arguments.bind(method, ["default"])?;
            let key = DictKey::of(&key)?;
            match dict.get(&key).cloned().or(default) {
                Some(value) => Ok((without_key(dict, &key)?.into_value(), value)),
                None => Err(RenderError::invalid("the key is not in the dictionary")),
            }
        }
        "popitem" => {
            arguments.none(method)?;
            let Some((key, value)) = dict.entries().last() else {
                return Err(RenderError::invalid("the dictionary is empty"));
            };
            let rest = without_key(dict, &DictKey::of(key)?)?;
            Ok((rest.into_value(), methods::pair(key, value)?))
        }
        _ => {
            arguments.none(method)?;
            Ok((Dict::default().into_value(), Value::None))
        }
    }
}

/// Copies the entries but one.
fn without_key(dict: &Dict, unwanted: &DictKey) -> Try<Dict> {
    let mut copy = Dict::default();
    for (key, value) in dict.entries() {
        if DictKey::of(key)? != *unwanted {
            copy.insert(key.clone(), value.clone())?;
        }
    }
    Ok(copy)
}
