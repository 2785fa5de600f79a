//! Jinja's two objects that count: `cycler` and `joiner`.

use std::cell::Cell;
use std::rc::Rc;

use super::calls::{CallArguments, Callable};
use super::error::{RenderError, Try};
use super::value::{Items, ItemsBuilder, TemplateText, Value};

/// `cycler(…)`: its items, over and over.
#[derive(Debug)]
pub(super) struct Cycler {
    pub items: Rc<Items>,
    at: Cell<usize>,
}

impl Cycler {
    pub fn value(arguments: CallArguments) -> Try<Value> {
        if arguments.positional.is_empty() || !arguments.named.is_empty() {
            return Err(RenderError::invalid("cycler takes one or more items"));
        }
        let items = ItemsBuilder::of(arguments.positional.into_iter().map(Ok))?.items();
        let at = Cell::new(0);
        Ok(Value::Callable(Rc::new(Callable::Cycler(Cycler { items, at }))))
    }

    /// Whether `name` is a method: `next` or `reset`.
    pub fn has_method(name: &str) -> bool {
        matches!(name, "next" | "reset")
    }

    /// Returns the item of the next call of `next`.
    pub fn current(&self) -> Value {
        self.items[self.at.get()].clone()
    }

    /// Calls a method.
    pub fn call(&self, name: &str, arguments: CallArguments) -> Try<Value> {
        arguments.none(name)?;
        if name == "reset" {
            self.at.set(0);
            return Ok(Value::None);
        }
        let item = self.current();
        self.at.set((self.at.get() + 1) % self.items.len());
        Ok(item)
    }
}

/// `joiner(sep)`: nothing at the first call, then the separator.
#[derive(Debug)]
pub(super) struct Joiner {
    separator: Value,
    used: Cell<bool>,
}

impl Joiner {
    pub fn value(arguments: CallArguments) -> Try<Value> {
        let [separator] = arguments.bind("joiner", ["sep"])?;
        let separator = match separator {
            Some(separator @ Value::Text(_)) => separator,
            None => Value::text(", ")?,
            Some(other) => {
                let what = format!("joiner takes a string, not '{}'", other.kind());
                return Err(RenderError::invalid(what));
            }
        };
        let used = Cell::new(false);
        Ok(Value::Callable(Rc::new(Callable::Joiner(Joiner { separator, used }))))
    }

    /// Calls it.
    pub fn call(&self, arguments: CallArguments) -> Try<Value> {
        arguments.none("joiner")?;
        if self.used.replace(true) {
            Ok(self.separator.clone())
        } else {
            TemplateText::new("").map(Value::Text)
        }
    }
}
