//! The values of templates: Python's, as far as Jinja's sandbox gives them out. All but namespaces never change.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use super::budget::{BoundedText, Held, spend, spend_on_bytes};
use super::calls::Callable;
use super::failure::{Attempt, RenderError};
use super::loops::LoopState;

/// Lists in lists in lists … more than any conversation has.
const MAX_VALUE_DEPTH: usize = 200;

/// What a value takes beside its content, in bytes: counters, and what the allocator adds.
const OVERHEAD: usize = 80;

/// What a place in a list takes, with a value there that does not count for itself.
const PLACE: usize = 128;

/// What an entry of a dictionary takes, with its place in the index.
const ENTRY: usize = 352;

/// A value.
#[derive(Debug, Clone, Default)]
pub(super) enum Datum {
    /// What is asked for and not there.
    #[default]
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(TemplateText),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    Dict(Rc<Dict>),
    Namespace(Rc<Namespace>),
    Loop(Rc<LoopState>),
    Callable(Rc<Callable>),
}

/// A string.
#[derive(Debug, Clone)]
pub(super) struct TemplateText(Rc<(Box<str>, Held)>);

/// The items of a list or tuple.
#[derive(Debug)]
pub(super) struct Items {
    items: Vec<Datum>,
    /// How deep lists and dictionaries are nested below this one.
    depth: usize,
    _held: Held,
}

/// Items that are being gathered, within the bounds.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    items: Vec<Datum>,
    depth: usize,
    held: Held,
    held_items: usize,
}

/// A dictionary, in the order of insertion.
#[derive(Debug, Default)]
pub(super) struct Dict {
    entries: Vec<(Datum, Datum)>,
    places: HashMap<DictKey, usize>,
    depth: usize,
    held: Vec<Held>,
}

/// What `namespace()` gives: variables that templates may change.
#[derive(Debug, Default)]
pub(super) struct Namespace(pub RefCell<Dict>);

/// A value that a dictionary can be asked for. Numbers that are equal are one key, as in Python.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum DictKey {
    Undefined,
    None,
    Int(i128),
    Float(u64),
    Text(TemplateText),
    /// What is in it, written so that equal tuples are written the same.
    Tuple(TemplateText),
}

impl TemplateText {
    pub fn new(text: impl Into<Box<str>>) -> Attempt<Self> {
        let text = text.into();
        spend_on_bytes(text.len())?;
        let held = Held::new(OVERHEAD + text.len())?;
        Ok(TemplateText(Rc::new((text, held))))
    }
}

impl Deref for TemplateText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.0
    }
}

impl PartialEq for TemplateText {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for TemplateText {}

impl std::hash::Hash for TemplateText {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Deref for Items {
    type Target = [Datum];

    fn deref(&self) -> &[Datum] {
        &self.items
    }
}

impl Gathered {
    pub fn new() -> Self {
        Self::default()
    }

    /// All of these.
    pub fn of(items: impl IntoIterator<Item = Attempt<Datum>>) -> Attempt<Self> {
        let mut gathered = Self::new();
        for item in items {
            gathered.push(item?)?;
        }
        Ok(gathered)
    }

    /// Texts of these.
    pub fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Attempt<Self> {
        Self::of(texts.into_iter().map(Datum::text))
    }

    pub fn push(&mut self, item: Datum) -> Attempt<()> {
        spend(1)?;
        if self.items.len() == self.held_items {
            let capacity = (self.held_items * 2).max(4);
            let held = Held::new(OVERHEAD + capacity * PLACE)?;
            self.items.reserve_exact(capacity - self.items.len());
            (self.held, self.held_items) = (held, capacity);
        }
        self.depth = self.depth.max(nest(&item)?);
        self.items.push(item);
        Ok(())
    }

    pub fn items(self) -> Rc<Items> {
        Rc::new(Items {
            items: self.items,
            depth: self.depth,
            _held: self.held,
        })
    }

    pub fn list(self) -> Datum {
        Datum::List(self.items())
    }

    pub fn tuple(self) -> Datum {
        Datum::Tuple(self.items())
    }
}

/// How deep something is that contains `item`.
fn nest(item: &Datum) -> Attempt<usize> {
    match item.depth() + 1 {
        depth if depth <= MAX_VALUE_DEPTH => Ok(depth),
        _ => Err(RenderError::limit(format_args!(
            "the template nests values more than {MAX_VALUE_DEPTH} levels deep"
        ))),
    }
}

impl Dict {
    /// Put `value` at `key`; a key that is there keeps its place.
    pub fn insert(&mut self, key: Datum, value: Datum) -> Attempt<()> {
        spend(1)?;
        self.depth = self.depth.max(nest(&value)?).max(nest(&key)?);
        match self.places.entry(DictKey::of(&key)?) {
            std::collections::hash_map::Entry::Occupied(place) => self.entries[*place.get()].1 = value,
            std::collections::hash_map::Entry::Vacant(place) => {
                self.held.push(Held::new(ENTRY)?);
                place.insert(self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    pub fn get(&self, key: &DictKey) -> Option<&Datum> {
        self.places.get(key).map(|place| &self.entries[*place].1)
    }

    pub fn get_text(&self, name: &TemplateText) -> Option<&Datum> {
        self.get(&DictKey::Text(name.clone()))
    }

    pub fn entries(&self) -> &[(Datum, Datum)] {
        &self.entries
    }

    pub fn keys(&self) -> impl Iterator<Item = Datum> {
        self.entries.iter().map(|(key, _)| key.clone())
    }

    /// A copy of it, within the bounds.
    pub fn copy(&self) -> Attempt<Self> {
        let mut copy = Dict::default();
        for (key, value) in &self.entries {
            copy.insert(key.clone(), value.clone())?;
        }
        Ok(copy)
    }

    pub fn datum(self) -> Datum {
        Datum::Dict(Rc::new(self))
    }
}

impl DictKey {
    pub fn of(value: &Datum) -> Attempt<Self> {
        Ok(match value {
            Datum::Undefined => DictKey::Undefined,
            Datum::None => DictKey::None,
            Datum::Bool(flag) => DictKey::Int(i128::from(*flag)),
            Datum::Int(number) => DictKey::Int(*number),
            Datum::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => DictKey::Int(*number as i128),
            Datum::Float(number) => DictKey::Float(number.to_bits()),
            Datum::Text(text) => {
                spend_on_bytes(text.len())?;
                DictKey::Text(text.clone())
            }
            Datum::Tuple(items) => {
                let mut written = BoundedText::new();
                for item in items.iter() {
                    DictKey::of(item)?.write(&mut written)?;
                }
                DictKey::Tuple(TemplateText::new(written.into_string())?)
            }
            other => {
                return Err(RenderError::invalid(format_args!(
                    "unhashable type: '{}'",
                    other.kind()
                )));
            }
        })
    }
    fn write(&self, out: &mut BoundedText) -> Attempt<()> {
        match self {
            DictKey::Undefined => out.push("u"),
            DictKey::None => out.push("n"),
            DictKey::Int(number) => out.push(&format!("i{number};")),
            DictKey::Float(bits) => out.push(&format!("f{bits};")),
            DictKey::Text(text) | DictKey::Tuple(text) => {
                let kind = if matches!(self, DictKey::Text(_)) { 's' } else { 't' };
                out.push(&format!("{kind}{};", text.len()))?;
                out.push(text)
            }
        }
    }
}

impl Datum {
    pub fn text(text: impl Into<Box<str>>) -> Attempt<Self> {
        TemplateText::new(text).map(Datum::Text)
    }

    pub fn built(text: BoundedText) -> Attempt<Self> {
        let text = text.into_string();
        Self::text(text)
    }

    pub fn count(number: usize) -> Self {
        Datum::Int(number as i128)
    }

    /// A value of JSON.
    pub fn from_json(value: &serde_json::Value) -> Attempt<Self> {
        use serde_json::Value;

        Ok(match value {
            Value::Null => Datum::None,
            Value::Bool(flag) => Datum::Bool(*flag),
            Value::Number(number) => match number.as_i128() {
                Some(integer) => Datum::Int(integer),
                None => Datum::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Datum::text(text.as_str())?,
            Value::Array(items) => Gathered::of(items.iter().map(Datum::from_json))?.list(),
            Value::Object(object) => {
                let mut dict = Dict::default();
                for (key, value) in object {
                    dict.insert(Datum::text(key.as_str())?, Datum::from_json(value)?)?;
                }
                dict.datum()
            }
        })
    }

    /// The name of its type in Python.
    pub fn kind(&self) -> &'static str {
        match self {
            Datum::Undefined => "Undefined",
            Datum::None => "NoneType",
            Datum::Bool(_) => "bool",
            Datum::Int(_) => "int",
            Datum::Float(_) => "float",
            Datum::Text(_) => "str",
            Datum::List(_) => "list",
            Datum::Tuple(_) => "tuple",
            Datum::Dict(_) => "dict",
            Datum::Namespace(_) => "Namespace",
            Datum::Loop(_) => "LoopContext",
            Datum::Callable(_) => "function",
        }
    }

    /// How deep lists and dictionaries are nested in it. Namespaces count as nothing: they can contain themselves, and
    /// live until the end of the rendering.
    pub fn depth(&self) -> usize {
        match self {
            Datum::List(items) | Datum::Tuple(items) => items.depth,
            Datum::Dict(dict) => dict.depth,
            Datum::Loop(state) => state.items.depth + 1,
            Datum::Callable(callable) => callable.depth(),
            _ => 0,
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Datum::Undefined | Datum::None => false,
            Datum::Bool(flag) => *flag,
            Datum::Int(number) => *number != 0,
            Datum::Float(number) => *number != 0.0,
            Datum::Text(text) => !text.is_empty(),
            Datum::List(items) | Datum::Tuple(items) => !items.is_empty(),
            Datum::Dict(dict) => !dict.entries.is_empty(),
            Datum::Namespace(_) | Datum::Loop(_) | Datum::Callable(_) => true,
        }
    }

    pub fn as_text(&self) -> Option<&TemplateText> {
        match self {
            Datum::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer that it is, as Python's `operator.index` takes it.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Datum::Bool(flag) => Some(i128::from(*flag)),
            Datum::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Datum::Float(number) => Some(*number),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    /// What a loop over it goes through.
    pub fn iterate(&self) -> Attempt<Rc<Items>> {
        Ok(match self {
            Datum::List(items) | Datum::Tuple(items) => items.clone(),
            Datum::Undefined => Gathered::new().items(),
            Datum::Dict(dict) => Gathered::of(dict.keys().map(Ok))?.items(),
            Datum::Text(text) => Gathered::of(text.chars().map(|c| Datum::text(&*c.encode_utf8(&mut [0; 4]))))?.items(),
            other => {
                return Err(RenderError::invalid(format_args!(
                    "'{}' object is not iterable",
                    other.kind()
                )));
            }
        })
    }

    /// Python's `len`.
    pub fn length(&self) -> Attempt<usize> {
        Ok(match self {
            Datum::Undefined => 0,
            Datum::Text(text) => {
                spend_on_bytes(text.len())?;
                text.chars().count()
            }
            Datum::List(items) | Datum::Tuple(items) => items.len(),
            Datum::Dict(dict) => dict.entries.len(),
            other => {
                return Err(RenderError::invalid(format_args!(
                    "object of type '{}' has no len()",
                    other.kind()
                )));
            }
        })
    }
}
