//! Filters over the items of a value.

use crate::template::budget::spend;
use crate::template::calls::{CallArguments, flag, required, size, text as text_of};
use crate::template::compare;
use crate::template::error::{RenderError, Try};
use crate::template::evaluate::item as item_of;
use crate::template::methods::{self, pair, text};
use crate::template::value::{Dict, DictKey, Items, ItemsBuilder, Value};

/// An attribute path such as `a.b.0`; empty for the item itself.
pub(super) struct Attributes(Vec<Value>);

impl Attributes {
    pub fn new(path: Option<Value>) -> Try<Self> {
        let mut keys = Vec::new();
        match path {
            None | Some(Value::None) => {}
            Some(Value::Text(path)) => {
                for part in path.split('.') {
                    let index = part
                        .parse::<u32>()
                        .ok()
                        .filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
                    keys.push(match index {
                        Some(index) => Value::Int(i128::from(index)),
                        None => Value::text(part)?,
                    });
                }
            }
            Some(key) => keys.push(key),
        }
        Ok(Attributes(keys))
    }

    pub fn of(&self, item: &Value) -> Try<Value> {
        spend(1)?;
        let mut value = item.clone();
        for key in &self.0 {
            value = item_of(&value, key)?;
        }
        Ok(value)
    }
}

pub(super) fn apply(name: &str, value: &Value, arguments: CallArguments) -> Try<Value> {
    match name {
        "first" | "last" => {
            arguments.none(name)?;
            let items = value.iterate()?;
            let found = if name == "first" { items.first() } else { items.last() };
            Ok(found.cloned().unwrap_or_default())
        }
        "join" => {
            let [between, attribute] = arguments.bind(name, ["d", "attribute"])?;
            let between = match between {
                Some(between) => crate::template::print::display(&between)?,
                None => crate::template::value::TemplateText::new("")?,
            };
            let attributes = Attributes::new(attribute)?;
            let items = value.iterate()?;
            let parts = ItemsBuilder::of(items.iter().map(|item| attributes.of(item)))?.items();
            text::join(&parts, &between)
        }
        "reverse" => {
            arguments.none(name)?;
            if let Value::Text(text) = value {
                return Value::text(text.chars().rev().collect::<String>());
            }
            let items = value.iterate()?;
            Ok(ItemsBuilder::of(items.iter().rev().cloned().map(Ok))?.list())
        }
        "attr" => {
            let [attribute] = arguments.bind(name, ["name"])?;
            let attribute = text_of(attribute, name)?;
            // Unlike `value.name`, this never looks up keys.
            match value {
                Value::Dict(_) if !methods::has(value, &attribute) => Ok(Value::Undefined),
                value => crate::template::evaluate::attribute(value, &attribute),
            }
        }
        "sort" => {
            let [reverse, sensitive, attribute] = arguments.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            let keyed = match attribute {
                Some(Value::Text(several)) => keyed_by_several(&*value.iterate()?, &several, flag(sensitive))?,
                attribute => keyed(&*value.iterate()?, attribute, flag(sensitive))?,
            };
            Ok(sorted(keyed, flag(reverse))?.list())
        }
        "unique" => unique(value, arguments),
        "min" | "max" => {
            let [sensitive, attribute] = arguments.bind(name, ["case_sensitive", "attribute"])?;
            let keyed = keyed(&*value.iterate()?, attribute, flag(sensitive))?;
            let wanted = if name == "min" {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Greater
            };
            let mut best: Option<(Value, Value)> = None;
            for candidate in keyed {
                let better = match &best {
                    Some((key, _)) => compare::order(&candidate.0, key)? == Some(wanted),
                    None => true,
                };
                if better {
                    best = Some(candidate);
                }
            }
            Ok(best.map(|(_, item)| item).unwrap_or_default())
        }
        "groupby" => group_by(value, arguments),
        "dictsort" => dict_sort(value, arguments),
        "batch" => batch(value, arguments),
        _ => slices(value, arguments),
    }
}

/// Pairs items with their sort keys.
fn keyed(items: &Items, attribute: Option<Value>, case_sensitive: bool) -> Try<Vec<(Value, Value)>> {
    let attributes = Attributes::new(attribute)?;
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.iter() {
        keyed.push((sort_key(attributes.of(item)?, case_sensitive)?, item.clone()));
    }
    Ok(keyed)
}

/// Pairs items with their sort keys, for several attributes separated by commas.
fn keyed_by_several(items: &Items, attributes: &str, case_sensitive: bool) -> Try<Vec<(Value, Value)>> {
    let mut paths = Vec::new();
    for path in attributes.split(',') {
        paths.push(Attributes::new(Some(Value::text(path)?))?);
    }
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.iter() {
        let keys = paths.iter().map(|path| sort_key(path.of(item)?, case_sensitive));
        keyed.push((ItemsBuilder::of(keys)?.list(), item.clone()));
    }
    Ok(keyed)
}

fn sort_key(value: Value, case_sensitive: bool) -> Try<Value> {
    match value {
        Value::Text(text) if !case_sensitive => Value::text(text.to_lowercase()),
        value => Ok(value),
    }
}

fn sorted(keyed: Vec<(Value, Value)>, reverse: bool) -> Try<ItemsBuilder> {
    let reversed = |values: Vec<_>| {
        if reverse {
            values.into_iter().rev().collect()
        } else {
            values
        }
    };
    // Reversed before and after, so that the sort stays stable.
    let sorted = compare::sort(reversed(keyed))?;
    if reverse {
        ItemsBuilder::of(sorted.into_iter().rev().map(Ok))
    } else {
        ItemsBuilder::of(sorted.into_iter().map(Ok))
    }
}

fn unique(value: &Value, arguments: CallArguments) -> Try<Value> {
    let [sensitive, attribute] = arguments.bind("unique", ["case_sensitive", "attribute"])?;
    let mut seen = Dict::default();
    let mut kept = ItemsBuilder::new();
    for (key, item) in keyed(&*value.iterate()?, attribute, flag(sensitive))? {
        if seen.get(&DictKey::of(&key)?).is_none() {
            seen.insert(key, Value::None)?;
            kept.push(item)?;
        }
    }
    Ok(kept.list())
}

/// Pairs each distinct value with the items that have it, in the order of the values.
fn group_by(value: &Value, arguments: CallArguments) -> Try<Value> {
    let names = ["attribute", "default", "case_sensitive"];
    let [attribute, default, sensitive] = arguments.bind("groupby", names)?;
    let attributes = Attributes::new(Some(required(attribute, "groupby")?))?;
    let mut keyed = Vec::new();
    for item in value.iterate()?.iter() {
        let found = match (attributes.of(item)?, &default) {
            (Value::Undefined, Some(default)) => default.clone(),
            (found, _) => found,
        };
        let key = sort_key(found.clone(), flag(sensitive.clone()))?;
        keyed.push((key.clone(), (key, found, item.clone())));
    }
    let mut groups = ItemsBuilder::new();
    let mut open: Option<(Value, Value, ItemsBuilder)> = None;
    for (key, found, item) in compare::sort(keyed)? {
        open = match open.take() {
            Some((last, named, mut group)) if compare::equal(&last, &key)? => {
                group.push(item)?;
                Some((last, named, group))
            }
            closed => {
                if let Some((_, named, group)) = closed {
                    groups.push(pair(&named, &group.list())?)?;
                }
                let mut group = ItemsBuilder::new();
                group.push(item)?;
                Some((key, found, group))
            }
        };
    }
    if let Some((_, named, group)) = open {
        groups.push(pair(&named, &group.list())?)?;
    }
    Ok(groups.list())
}

/// The pairs of a dictionary, sorted by key or value.
fn dict_sort(value: &Value, arguments: CallArguments) -> Try<Value> {
    let [sensitive, by, reverse] = arguments.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let dict = match value {
        Value::Dict(dict) => dict,
        Value::Undefined => return Err(RenderError::undefined("")),
        other => {
            return Err(RenderError::invalid(format!(
                "dictsort takes a dictionary, not '{}'",
                other.kind()
            )));
        }
    };
    let by_value = match by {
        None => false,
        Some(by) => match &*text_of(Some(by), "dictsort")? {
            "key" => false,
            "value" => true,
            _ => return Err(RenderError::invalid("dictsort sorts by \"key\" or \"value\"")),
        },
    };
    let mut keyed = Vec::with_capacity(dict.entries().len());
    for (key, value) in dict.entries() {
        let by = if by_value { value } else { key };
        keyed.push((sort_key(by.clone(), flag(sensitive.clone()))?, pair(key, value)?));
    }
    Ok(sorted(keyed, flag(reverse))?.list())
}

/// Splits into lists of `count` items; the last one is padded if a fill value is given.
fn batch(value: &Value, arguments: CallArguments) -> Try<Value> {
    let [count, fill] = arguments.bind("batch", ["linecount", "fill_with"])?;
    let count = size(Some(required(count, "batch")?), "batch")?.unwrap_or_default();
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let mut batches = ItemsBuilder::new();
    for items in value.iterate()?.chunks(count.max(1)) {
        let mut batch = ItemsBuilder::of(items.iter().cloned().map(Ok))?;
        if let Some(fill) = &fill {
            for _ in items.len()..count {
                batch.push(fill.clone())?;
            }
        }
        batches.push(batch.list())?;
    }
    Ok(batches.list())
}

/// Splits into `count` lists of nearly equal length; the first ones get one item more.
fn slices(value: &Value, arguments: CallArguments) -> Try<Value> {
    let [count, fill] = arguments.bind("slice", ["slices", "fill_with"])?;
    let count = size(Some(required(count, "slice")?), "slice")?.unwrap_or_default();
    if count == 0 {
        return Err(RenderError::invalid("slice must make at least one list"));
    }
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let items = value.iterate()?;
    let (each, longer) = (items.len() / count, items.len() % count);
    let mut slices = ItemsBuilder::new();
    let mut start = 0;
    for number in 0..count {
        let end = start + each + usize::from(number < longer);
        let mut slice = ItemsBuilder::of(items[start..end].iter().cloned().map(Ok))?;
        if let Some(fill) = fill.as_ref().filter(|_| number >= longer) {
            slice.push(fill.clone())?;
        }
        slices.push(slice.list())?;
        start = end;
    }
    Ok(slices.list())
}
