//! Callable values, and the arguments of calls.

use std::rc::{Rc, Weak};
use std::time::SystemTime;

use super::budget::{BoundedText, MemoryCharge, spend};
use super::counters::{Cycler, Joiner};
use super::error::{RenderError, Try};
use super::render::{Renderer, Variables};
use super::syntax::MacroSource;
use super::value::{Dict, ItemsBuilder, TemplateText, Value};
use super::{print, time};

/// Longest range, as in Python's Jinja sandbox.
const MAX_RANGE: i128 = 100_000;

/// Memory charged for an argument, in bytes.
const ARGUMENT_BYTES: usize = 64;

/// A callable value.
#[derive(Debug)]
pub(super) enum Callable {
    GlobalFunction(GlobalFunction),
    /// A method with its receiver.
    Method(Value, TemplateText),
    /// A macro with its enclosing variables. They are gone once it has left the block that defines it.
    Macro(Rc<MacroSource>, Weak<Variables>),
    Cycler(Cycler),
    Joiner(Joiner),
}

/// The functions that every template can call.
#[derive(Debug, Clone, Copy)]
pub(super) enum GlobalFunction {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    Lipsum,
    RaiseException,
    StrftimeNow,
}

impl GlobalFunction {
    pub const ALL: [(&'static str, GlobalFunction); 8] = [
        ("range", GlobalFunction::Range),
        ("dict", GlobalFunction::Dict),
        ("namespace", GlobalFunction::Namespace),
        ("cycler", GlobalFunction::Cycler),
        ("joiner", GlobalFunction::Joiner),
        ("lipsum", GlobalFunction::Lipsum),
        ("raise_exception", GlobalFunction::RaiseException),
        ("strftime_now", GlobalFunction::StrftimeNow),
    ];
}

impl Callable {
    pub fn depth(&self) -> usize {
        match self {
            Callable::Method(receiver, _) => receiver.depth() + 1,
            Callable::Cycler(cycler) => cycler.items.depth() + 1,
            Callable::GlobalFunction(_) | Callable::Macro(..) | Callable::Joiner(_) => 0,
        }
    }
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct CallArguments {
    pub positional: Vec<Value>,
    pub named: Vec<(TemplateText, Value)>,
    held: MemoryCharge,
}

impl CallArguments {
    /// Binds the arguments, positional or named, to the parameters `names`. `of` names the callee in errors.
    ///
    /// # Errors
    /// If there are too many, unknown or duplicate arguments.
    pub fn bind<const N: usize>(self, of: &str, names: [&str; N]) -> Try<[Option<Value>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            let what = format!("{of} takes at most {N} arguments, not {}", self.positional.len());
            return Err(RenderError::invalid(what));
        }
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            let index = names.iter().position(|known| *known == &*name);
            let index = index.ok_or_else(|| RenderError::invalid(format!("{of} has no parameter {:?}", &*name)))?;
            if bound[index].replace(value).is_some() {
                return Err(RenderError::invalid(format!("{of} got two values for {:?}", &*name)));
            }
        }
        Ok(bound)
    }

    /// Checks that there are no arguments.
    pub fn none(self, of: &str) -> Try<()> {
        self.bind(of, []).map(drop)
    }

    /// Removes the first positional argument.
    pub fn take_first(&mut self) -> Option<Value> {
        if self.positional.is_empty() {
            None
        } else {
            Some(self.positional.remove(0))
        }
    }

    /// Removes the argument of this name.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.named.iter().position(|(given, _)| &**given == name)?;
        Some(self.named.remove(index).1)
    }

    /// Copies the arguments.
    pub fn copy(&self) -> Try<Self> {
        let mut copy = CallArguments {
            positional: self.positional.clone(),
            named: self.named.clone(),
            held: MemoryCharge::default(),
        };
        copy.count()?;
        Ok(copy)
    }

    /// Charges the memory of the arguments.
    pub fn count(&mut self) -> Try<()> {
        let count = self.positional.len() + self.named.len();
        spend(count)?;
        self.held = MemoryCharge::new(count * ARGUMENT_BYTES)?;
        Ok(())
    }

    /// Returns all named arguments as a dictionary.
    pub fn dict(self) -> Try<Dict> {
        let mut dict = Dict::default();
        for (name, value) in self.named {
            dict.insert(Value::Text(name), value)?;
        }
        Ok(dict)
    }
}

/// Returns an argument that must be given.
pub(super) fn required(argument: Option<Value>, of: &str) -> Try<Value> {
    argument.ok_or_else(|| RenderError::invalid(format!("{of} is missing an argument")))
}

/// Returns an argument that must be a string.
pub(super) fn text(argument: Option<Value>, of: &str) -> Try<TemplateText> {
    match required(argument, of)? {
        Value::Text(text) => Ok(text),
        other => Err(RenderError::invalid(format!(
            "{of} takes a string, not '{}'",
            other.kind()
        ))),
    }
}

/// Returns an integer argument; `None` if it is missing or none.
pub(super) fn integer(argument: Option<Value>, of: &str) -> Try<Option<i128>> {
    match argument {
        None | Some(Value::None) => Ok(None),
        Some(value) => match value.as_int() {
            Some(number) => Ok(Some(number)),
            None => Err(RenderError::invalid(format!(
                "{of} takes an integer, not '{}'",
                value.kind()
            ))),
        },
    }
}

/// Returns an argument that is a count; negative numbers count as 0.
pub(super) fn size(argument: Option<Value>, of: &str) -> Try<Option<usize>> {
    Ok(integer(argument, of)?.map(|number| usize::try_from(number.max(0)).unwrap_or(usize::MAX)))
}

/// Returns a boolean argument; false if it is missing.
pub(super) fn flag(argument: Option<Value>) -> bool {
    argument.is_some_and(|value| value.is_true())
}

impl Renderer {
    /// Calls a value.
    pub fn call(&mut self, callee: &Value, mut arguments: CallArguments) -> Try<Value> {
        match callee {
            Value::Callable(callable) => match &**callable {
                Callable::GlobalFunction(function) => self.call_function(*function, arguments),
                Callable::Method(receiver, name) => super::methods::call(receiver, name, arguments),
                Callable::Macro(source, around) => self.call_macro(source, around, arguments),
                Callable::Joiner(joiner) => joiner.call(arguments),
                Callable::Cycler(_) => Err(RenderError::invalid(
                    "a cycler has no value of its own: call its next()",
                )),
            },
            Value::Loop(state) => {
                let items = required(arguments.take_first(), "loop")?;
                arguments.none("loop")?;
                self.recurse(state, &items)
            }
            Value::Undefined => Err(RenderError::undefined("")),
            other => Err(RenderError::invalid(format!(
                "'{}' object is not callable",
                other.kind()
            ))),
        }
    }

    fn call_function(&mut self, function: GlobalFunction, mut arguments: CallArguments) -> Try<Value> {
        match function {
            GlobalFunction::Range => range(arguments),
            GlobalFunction::Dict => Ok(from_pairs(arguments)?.into_value()),
            GlobalFunction::Namespace => self.namespace(from_pairs(arguments)?),
            GlobalFunction::Cycler => Cycler::value(arguments),
            GlobalFunction::Joiner => Joiner::value(arguments),
            GlobalFunction::Lipsum => Err(RenderError::invalid(
                "lipsum writes random text, which no prompt should hold",
            )),
            GlobalFunction::RaiseException => {
                let [message] = arguments.bind("raise_exception", ["message"])?;
                let message = print::display(&required(message, "raise_exception")?)?;
                Err(RenderError::raised(&message))
            }
            GlobalFunction::StrftimeNow => {
                let format = text(arguments.take_first(), "strftime_now")?;
                arguments.none("strftime_now")?;
                Value::built(time::strftime(&format, self.time.unwrap_or_else(SystemTime::now))?)
            }
        }
    }

    fn call_macro(
        &mut self,
        source: &Rc<MacroSource>,
        around: &Weak<Variables>,
        mut arguments: CallArguments,
    ) -> Try<Value> {
        let around = around.upgrade().unwrap_or_else(|| self.root.clone());
        let variables = Variables::child_of(&around);
        let name = &source.name;
        let caller = arguments.take("caller");
        let mut positional = std::mem::take(&mut arguments.positional).into_iter();
        for (parameter, default) in &source.parameters {
            spend(1 + arguments.named.len())?;
            let value = match (positional.next(), arguments.take(parameter), default) {
                (Some(_), Some(_), _) => {
                    let what = format!("macro {:?} got two values for {:?}", &**name, &**parameter);
                    return Err(RenderError::invalid(what));
                }
                (Some(value), None, _) | (None, Some(value), _) => value,
                (None, None, Some(default)) => self.evaluate(default, &variables)?,
                (None, None, None) => Value::Undefined,
            };
            variables.set(parameter, value)?;
        }
        let special = |name: &str, value: Value| variables.set(&TemplateText::new(name)?, value);
        if source.uses.varargs {
            special("varargs", ItemsBuilder::of(positional.by_ref().map(Ok))?.tuple())?;
        }
        if source.uses.kwargs {
            special("kwargs", std::mem::take(&mut arguments).dict()?.into_value())?;
        }
        if source.uses.caller {
            special("caller", caller.unwrap_or_default())?;
        } else if caller.is_some() {
            let what = format!("macro {:?} does not use the call block's body", &**name);
            return Err(RenderError::invalid(what));
        }
        if positional.next().is_some() || !arguments.named.is_empty() {
            let what = format!("macro {:?} does not take these arguments", &**name);
            return Err(RenderError::invalid(what));
        }
        let mut out = BoundedText::new();
        self.run(&source.body, &variables, &mut out)?;
        Value::built(out)
    }
}

fn range(arguments: CallArguments) -> Try<Value> {
    let [first, second, step] = arguments.bind("range", ["start", "stop", "step"])?;
    let to_integer = |value: Value| {
        let wrong = RenderError::invalid(format!("'{}' object cannot be interpreted as an integer", value.kind()));
        value.as_int().ok_or(wrong)
    };
    let first = to_integer(required(first, "range")?)?;
    let (start, stop) = match second {
        Some(stop) => (first, to_integer(stop)?),
        None => (0, first),
    };
    let step = step.map_or(Ok(1), to_integer)?;
    if step == 0 {
        return Err(RenderError::invalid("the third argument of range must not be zero"));
    }
    let span = if step > 0 {
        stop.checked_sub(start)
    } else {
        start.checked_sub(stop)
    };
    let count = match span.zip(step.checked_abs()) {
        Some((span, step)) => span.max(0) / step + i128::from(span > 0 && span % step != 0),
        None => MAX_RANGE + 1,
    };
    if count > MAX_RANGE {
        return Err(RenderError::invalid(format!(
            "a range of more than {MAX_RANGE} numbers"
        )));
    }
    Ok(ItemsBuilder::of((0..count).map(|index| Ok(Value::Int(start + index * step))))?.list())
}

/// Builds what `dict`, `namespace` and `update` take, from a dictionary or pairs and the named arguments.
pub(super) fn from_pairs(mut arguments: CallArguments) -> Try<Dict> {
    let mut dict = match arguments.take_first() {
        None => Dict::default(),
        Some(Value::Dict(given)) => given.copy()?,
        Some(pairs) => {
            let mut dict = Dict::default();
            for pair in pairs.iterate()?.iter() {
                match &pair.iterate()?[..] {
                    [key, value] => dict.insert(key.clone(), value.clone())?,
                    _ => return Err(RenderError::invalid("dict takes pairs")),
                }
            }
            dict
        }
    };
    for (key, value) in arguments.dict()?.entries() {
        dict.insert(key.clone(), value.clone())?;
    }
    Ok(dict)
}
