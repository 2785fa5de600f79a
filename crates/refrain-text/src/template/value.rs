//! The values of templates: those of Python that Jinja's sandbox exposes. All but namespaces are immutable.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use super::budget::{BoundedText, MemoryCharge, spend, spend_on_bytes};
use super::calls::Callable;
use super::error::{RenderError, Try};
use super::loops::LoopState;

/// Limit of nested lists and dictionaries: more than any conversation has.
const MAX_VALUE_DEPTH: usize = 200;

/// Memory charged for a value beside its content, in bytes: reference counts and the allocator's overhead.
const VALUE_BYTES: usize = 80;

/// Memory charged for a list item, in bytes, including values that do not charge for themselves.
const ITEM_BYTES: usize = 128;

/// Memory charged for a dictionary entry and its index, in bytes.
const ENTRY_BYTES: usize = 352;

/// A value.
#[derive(Debug, Clone, Default)]
pub(super) enum Value {
    /// A missing variable, key or attribute.
    #[default]
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A number of a conversation that fits neither, by its digits.
    Number(TemplateText),
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
pub(super) struct TemplateText(Rc<(Box<str>, MemoryCharge)>);

/// The items of a list or tuple.
#[derive(Debug)]
pub(super) struct Items {
    items: Vec<Value>,
    /// Levels of nested lists and dictionaries below this one.
    depth: usize,
    _held: MemoryCharge,
}

/// Collects items within the limits.
#[derive(Debug, Default)]
pub(super) struct ItemsBuilder {
    items: Vec<Value>,
    depth: usize,
    held: MemoryCharge,
    held_items: usize,
}

/// A dictionary in insertion order.
#[derive(Debug, Default)]
pub(super) struct Dict {
    entries: Vec<(Value, Value)>,
    indices: HashMap<DictKey, usize>,
    depth: usize,
    held: Vec<MemoryCharge>,
}

/// The result of `namespace()`: variables that templates may change.
#[derive(Debug, Default)]
pub(super) struct Namespace(pub RefCell<Dict>);

/// A hashable value. Equal numbers are one key, as in Python.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum DictKey {
    Undefined,
    None,
    Int(i128),
    Float(u64),
    Text(TemplateText),
    /// A serialisation in which equal tuples are equal.
    Tuple(TemplateText),
}

impl TemplateText {
    pub fn new(text: impl Into<Box<str>>) -> Try<Self> {
        let text = text.into();
        spend_on_bytes(text.len())?;
        let held = MemoryCharge::new(VALUE_BYTES + text.len())?;
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
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.items
    }
}

impl Items {
    /// Levels of nested lists and dictionaries.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl ItemsBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Collects all `items`.
    pub fn of(items: impl IntoIterator<Item = Try<Value>>) -> Try<Self> {
        let mut gathered = Self::new();
        for item in items {
            gathered.push(item?)?;
        }
        Ok(gathered)
    }

    /// Collects strings.
    pub fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Try<Self> {
        Self::of(texts.into_iter().map(Value::text))
    }

    pub fn push(&mut self, item: Value) -> Try<()> {
        spend(1)?;
        if self.items.len() == self.held_items {
            let capacity = (self.held_items * 2).max(4);
            let held = MemoryCharge::new(VALUE_BYTES + capacity * ITEM_BYTES)?;
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

    pub fn list(self) -> Value {
        Value::List(self.items())
    }

    pub fn tuple(self) -> Value {
        Value::Tuple(self.items())
    }
}

/// Returns the nesting depth of a container of `item`.
fn nest(item: &Value) -> Try<usize> {
    match item.depth() + 1 {
        depth if depth <= MAX_VALUE_DEPTH => Ok(depth),
        _ => Err(RenderError::limit(format_args!(
            "value nesting exceeds {MAX_VALUE_DEPTH} levels"
        ))),
    }
}

impl Dict {
    /// Sets the value of `key`; an existing key keeps its position.
    pub fn insert(&mut self, key: Value, value: Value) -> Try<()> {
        spend(1)?;
        self.depth = self.depth.max(nest(&value)?).max(nest(&key)?);
        match self.indices.entry(DictKey::of(&key)?) {
            std::collections::hash_map::Entry::Occupied(index) => self.entries[*index.get()].1 = value,
            std::collections::hash_map::Entry::Vacant(index) => {
                self.held.push(MemoryCharge::new(ENTRY_BYTES)?);
                index.insert(self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    pub fn get(&self, key: &DictKey) -> Option<&Value> {
        self.indices.get(key).map(|index| &self.entries[*index].1)
    }

    pub fn get_text(&self, name: &TemplateText) -> Option<&Value> {
        self.get(&DictKey::Text(name.clone()))
    }

    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub fn keys(&self) -> impl Iterator<Item = Value> {
        self.entries.iter().map(|(key, _)| key.clone())
    }

    /// Copies it within the limits.
    pub fn copy(&self) -> Try<Self> {
        let mut copy = Dict::default();
        for (key, value) in &self.entries {
            copy.insert(key.clone(), value.clone())?;
        }
        Ok(copy)
    }

    pub fn into_value(self) -> Value {
        Value::Dict(Rc::new(self))
    }
}

impl DictKey {
    pub fn of(value: &Value) -> Try<Self> {
        Ok(match value {
            Value::Undefined => DictKey::Undefined,
            Value::None => DictKey::None,
            Value::Bool(flag) => DictKey::Int(i128::from(*flag)),
            Value::Int(number) => DictKey::Int(*number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => DictKey::Int(*number as i128),
            Value::Float(number) => DictKey::Float(number.to_bits()),
            Value::Text(text) | Value::Number(text) => {
                spend_on_bytes(text.len())?;
                DictKey::Text(text.clone())
            }
            Value::Tuple(items) => {
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
    fn write(&self, out: &mut BoundedText) -> Try<()> {
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

impl Value {
    pub fn text(text: impl Into<Box<str>>) -> Try<Self> {
        TemplateText::new(text).map(Value::Text)
    }

    pub fn built(text: BoundedText) -> Try<Self> {
        let text = text.into_string();
        Self::text(text)
    }

    pub fn count(number: usize) -> Self {
        Value::Int(number as i128)
    }

    /// Converts a number in JSON's notation without losing digits.
    fn number(digits: &str) -> Try<Self> {
        match digits.parse() {
            Ok(integer) => Ok(Value::Int(integer)),
            Err(_) => TemplateText::new(digits).map(Value::Number),
        }
    }

    /// Converts a JSON value.
    pub fn from_json(value: &serde_json::Value) -> Try<Self> {
        use serde_json::Value as Json;

        Ok(match value {
            Json::Null => Value::None,
            Json::Bool(flag) => Value::Bool(*flag),
            Json::Number(number) => match number.as_i128() {
                Some(integer) => Value::Int(integer),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::text(text.as_str())?,
            Json::Array(items) => ItemsBuilder::of(items.iter().map(Value::from_json))?.list(),
            Json::Object(object) => {
                if let Some(number) = crate::exact::literal(value) {
                    return Value::number(number);
                }
                let mut dict = Dict::default();
                for (key, value) in object {
                    dict.insert(Value::text(key.as_str())?, Value::from_json(value)?)?;
                }
                dict.into_value()
            }
        })
    }

    /// Returns the name of its type in Python.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Undefined => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Number(digits) if digits.contains(['.', 'e', 'E']) => "float",
            Value::Number(_) => "int",
            Value::Text(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Namespace(_) => "Namespace",
            Value::Loop(_) => "LoopContext",
            Value::Callable(_) => "function",
        }
    }

    /// Returns the depth of nested lists and dictionaries. Namespaces count as nothing: they can contain
    /// themselves, and live until the end of the rendering.
    pub fn depth(&self) -> usize {
        match self {
            Value::List(items) | Value::Tuple(items) => items.depth,
            Value::Dict(dict) => dict.depth,
            Value::Loop(state) => state.items.depth + 1,
            Value::Callable(callable) => callable.depth(),
            _ => 0,
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined | Value::None => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Number(_) => true,
            Value::Text(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) => !items.is_empty(),
            Value::Dict(dict) => !dict.entries.is_empty(),
            Value::Namespace(_) | Value::Loop(_) | Value::Callable(_) => true,
        }
    }

    pub fn as_text(&self) -> Option<&TemplateText> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns it as an integer, as Python's `operator.index` does.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(flag) => Some(i128::from(*flag)),
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(number) => Some(*number),
            Value::Number(digits) => digits.parse().ok(),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    /// Returns the items that a loop over it visits.
    pub fn iterate(&self) -> Try<Rc<Items>> {
        Ok(match self {
            Value::List(items) | Value::Tuple(items) => items.clone(),
            Value::Undefined => ItemsBuilder::new().items(),
            Value::Dict(dict) => ItemsBuilder::of(dict.keys().map(Ok))?.items(),
            Value::Text(text) => {
                ItemsBuilder::of(text.chars().map(|c| Value::text(&*c.encode_utf8(&mut [0; 4]))))?.items()
            }
            other => {
                return Err(RenderError::invalid(format_args!(
                    "'{}' object is not iterable",
                    other.kind()
                )));
            }
        })
    }

    /// Python's `len`.
    pub fn length(&self) -> Try<usize> {
        Ok(match self {
            Value::Undefined => 0,
            Value::Text(text) => {
                spend_on_bytes(text.len())?;
                text.chars().count()
            }
            Value::List(items) | Value::Tuple(items) => items.len(),
            Value::Dict(dict) => dict.entries.len(),
            other => {
                return Err(RenderError::invalid(format_args!(
                    "object of type '{}' has no len()",
                    other.kind()
                )));
            }
        })
    }
}
