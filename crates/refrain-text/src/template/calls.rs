//! What templates can call, and the arguments that they give.

use std::rc::{Rc, Weak};

use super::budget::{BoundedText, Held, spend};
use super::failure::{Attempt, RenderError};
use super::print;
use super::render::{Renderer, Variables};
use super::syntax::MacroSource;
use super::value::{Datum, Dict, Gathered, TemplateText};

/// Python's jinja sandbox makes no longer ranges.
const MAX_RANGE: i128 = 100_000;

/// What an argument takes, in bytes.
const ARGUMENT: usize = 64;

/// Something that can be called.
#[derive(Debug)]
pub(super) enum Callable {
    GlobalFunction(GlobalFunction),
    /// A method, with the value that it is of.
    Method(Datum, TemplateText),
    /// A macro, with the variables around it; they are gone if it has left the block that defines it.
    Macro(Rc<MacroSource>, Weak<Variables>),
}

/// The functions that every template knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum GlobalFunction {
    Range,
    Dict,
    Namespace,
    RaiseException,
    StrftimeNow,
}

impl GlobalFunction {
    pub const ALL: [(&'static str, GlobalFunction); 5] = [
        ("range", GlobalFunction::Range),
        ("dict", GlobalFunction::Dict),
        ("namespace", GlobalFunction::Namespace),
        ("raise_exception", GlobalFunction::RaiseException),
        ("strftime_now", GlobalFunction::StrftimeNow),
    ];
}

impl Callable {
    pub fn depth(&self) -> usize {
        match self {
            Callable::Method(receiver, _) => receiver.depth() + 1,
            Callable::GlobalFunction(_) | Callable::Macro(..) => 0,
        }
    }
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct CallArguments {
    pub positional: Vec<Datum>,
    pub named: Vec<(TemplateText, Datum)>,
    held: Held,
}

impl CallArguments {
    /// The arguments by the names of the parameters, in whichever way they were given. `of` is what is called.
    ///
    /// # Errors
    /// If there are more, others, or one twice.
    pub fn bind<const N: usize>(self, of: &str, names: [&str; N]) -> Attempt<[Option<Datum>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            let what = format!("{of} takes at most {N} arguments, not {}", self.positional.len());
            return Err(RenderError::invalid(what));
        }
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let place = names.iter().position(|known| *known == &*name);
            let place = place.ok_or_else(|| RenderError::invalid(format!("{of} has no parameter {:?}", &*name)))?;
            if bound[place].replace(value).is_some() {
                return Err(RenderError::invalid(format!("{of} got two values for {:?}", &*name)));
            }
        }
        Ok(bound)
    }

    /// No arguments at all.
    pub fn none(self, of: &str) -> Attempt<()> {
        self.bind(of, []).map(drop)
    }

    /// Take the first argument off.
    pub fn take_first(&mut self) -> Option<Datum> {
        if self.positional.is_empty() {
            None
        } else {
            Some(self.positional.remove(0))
        }
    }

    /// Take the argument of this name off.
    pub fn take(&mut self, name: &str) -> Option<Datum> {
        let place = self.named.iter().position(|(given, _)| &**given == name)?;
        Some(self.named.remove(place).1)
    }

    /// The same arguments once more.
    pub fn copy(&self) -> Attempt<Self> {
        let mut copy = CallArguments {
            positional: self.positional.clone(),
            named: self.named.clone(),
            held: Held::default(),
        };
        copy.count()?;
        Ok(copy)
    }

    /// Account for what the arguments take.
    pub fn count(&mut self) -> Attempt<()> {
        let count = self.positional.len() + self.named.len();
        spend(count)?;
        self.held = Held::new(count * ARGUMENT)?;
        Ok(())
    }

    /// All that is given by name.
    pub fn dict(self) -> Attempt<Dict> {
        let mut dict = Dict::default();
        for (name, value) in self.named {
            dict.insert(Datum::Text(name), value)?;
        }
        Ok(dict)
    }
}

/// An argument that cannot be left out.
pub(super) fn required(argument: Option<Datum>, of: &str) -> Attempt<Datum> {
    argument.ok_or_else(|| RenderError::invalid(format!("{of} lacks an argument")))
}

/// An argument that is a string.
pub(super) fn text(argument: Option<Datum>, of: &str) -> Attempt<TemplateText> {
    match required(argument, of)? {
        Datum::Text(text) => Ok(text),
        other => Err(RenderError::invalid(format!(
            "{of} takes a string, not '{}'",
            other.kind()
        ))),
    }
}

/// An argument that is an integer, or not there.
pub(super) fn integer(argument: Option<Datum>, of: &str) -> Attempt<Option<i128>> {
    match argument {
        None | Some(Datum::None) => Ok(None),
        Some(value) => match value.as_int() {
            Some(number) => Ok(Some(number)),
            None => Err(RenderError::invalid(format!(
                "{of} takes an integer, not '{}'",
                value.kind()
            ))),
        },
    }
}

/// An argument that is a number of things: what is negative counts as 0.
pub(super) fn size(argument: Option<Datum>, of: &str) -> Attempt<Option<usize>> {
    Ok(integer(argument, of)?.map(|number| usize::try_from(number.max(0)).unwrap_or(usize::MAX)))
}

/// An argument that says yes or no.
pub(super) fn flag(argument: Option<Datum>) -> bool {
    argument.is_some_and(|value| value.is_true())
}

impl Renderer {
    /// Call a value.
    pub fn call(&mut self, callee: &Datum, mut arguments: CallArguments) -> Attempt<Datum> {
        match callee {
            Datum::Callable(callable) => match &**callable {
                Callable::GlobalFunction(function) => self.call_function(*function, arguments),
                Callable::Method(receiver, name) => super::methods::call(receiver, name, arguments),
                Callable::Macro(source, around) => self.call_macro(source, around, arguments),
            },
            Datum::Loop(state) => {
                let items = required(arguments.take_first(), "loop")?;
                arguments.none("loop")?;
                self.recurse(state, &items)
            }
            Datum::Undefined => Err(RenderError::undefined("")),
            other => Err(RenderError::invalid(format!(
                "'{}' object is not callable",
                other.kind()
            ))),
        }
    }

    fn call_function(&mut self, function: GlobalFunction, mut arguments: CallArguments) -> Attempt<Datum> {
        match function {
            GlobalFunction::Range => range(arguments),
            GlobalFunction::Dict => Ok(from_pairs(arguments)?.datum()),
            GlobalFunction::Namespace => self.namespace(from_pairs(arguments)?),
            GlobalFunction::RaiseException => {
                let [message] = arguments.bind("raise_exception", ["message"])?;
                let message = print::display(&required(message, "raise_exception")?)?;
                Err(RenderError::raised(&message))
            }
            GlobalFunction::StrftimeNow => {
                let format = text(arguments.take_first(), "strftime_now")?;
                arguments.none("strftime_now")?;
                Datum::built(self.strftime(&format)?)
            }
        }
    }

    fn call_macro(
        &mut self,
        source: &Rc<MacroSource>,
        around: &Weak<Variables>,
        mut arguments: CallArguments,
    ) -> Attempt<Datum> {
        let around = around.upgrade().unwrap_or_else(|| self.root.clone());
        let variables = Variables::within(&around);
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
                (None, None, None) => Datum::Undefined,
            };
            variables.set(parameter, value)?;
        }
        let special = |name: &str, value: Datum| variables.set(&TemplateText::new(name)?, value);
        if source.uses.varargs {
            special("varargs", Gathered::of(positional.by_ref().map(Ok))?.tuple())?;
        }
        if source.uses.kwargs {
            special("kwargs", std::mem::take(&mut arguments).dict()?.datum())?;
        }
        if source.uses.caller {
            special("caller", caller.unwrap_or_default())?;
        } else if caller.is_some() {
            let what = format!("macro {:?} makes no use of the call block's body", &**name);
            return Err(RenderError::invalid(what));
        }
        if positional.next().is_some() || !arguments.named.is_empty() {
            let what = format!("macro {:?} takes other arguments", &**name);
            return Err(RenderError::invalid(what));
        }
        let mut out = BoundedText::new();
        self.run(&source.body, &variables, &mut out)?;
        Datum::built(out)
    }
}

fn range(arguments: CallArguments) -> Attempt<Datum> {
    let [first, second, step] = arguments.bind("range", ["start", "stop", "step"])?;
    let whole = |value: Datum| {
        let wrong = RenderError::invalid(format!("'{}' object cannot be interpreted as an integer", value.kind()));
        value.as_int().ok_or(wrong)
    };
    let first = whole(required(first, "range")?)?;
    let (start, stop) = match second {
        Some(stop) => (first, whole(stop)?),
        None => (0, first),
    };
    let step = step.map_or(Ok(1), whole)?;
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
    Ok(Gathered::of((0..count).map(|place| Ok(Datum::Int(start + place * step))))?.list())
}

/// What `dict` and `namespace` make: of a dictionary or pairs, and of what is given by name.
fn from_pairs(mut arguments: CallArguments) -> Attempt<Dict> {
    let mut dict = match arguments.take_first() {
        None => Dict::default(),
        Some(Datum::Dict(given)) => given.copy()?,
        Some(pairs) => {
            let mut dict = Dict::default();
            for pair in pairs.iterate()?.iter() {
                match &pair.iterate()?[..] {
                    [key, value] => dict.insert(key.clone(), value.clone())?,
                    _ => return Err(RenderError::invalid("a dictionary is made of pairs")),
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
