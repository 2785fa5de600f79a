//! The filter `pprint`: Python's `pprint.pformat`, which breaks long values into lines.

use super::super::budget::{BoundedText, enter_level};
use super::super::compare;
use super::super::error::Try;
use super::super::methods::split;
use super::super::print;
use super::super::value::{Dict, ItemsBuilder, Value};

/// Longest line, in characters, if its contents allow it.
const WIDTH: usize = 80;

/// Prints a value in lines.
pub(super) fn pprint(value: &Value) -> Try<Value> {
    let mut out = BoundedText::new();
    let value = sorted(value)?;
    match &value {
        Value::Text(text) => write_text(text, Place { indent: 1, after: 1 }, true, &mut out)?,
        other => write(other, Place { indent: 0, after: 0 }, &mut out)?,
    }
    Value::built(out)
}

/// Where a value is printed.
#[derive(Clone, Copy)]
struct Place {
    /// Characters before it on its line.
    indent: usize,
    /// Characters that follow it on its last line.
    after: usize,
}

impl Place {
    /// Whether a text of so many characters fits.
    fn fits(self, length: usize) -> bool {
        length + self.indent + self.after <= WIDTH
    }
}

/// Copies a value with the keys of its dictionaries in order, where they have one.
fn sorted(value: &Value) -> Try<Value> {
    let _level = enter_level()?;
    Ok(match value {
        Value::List(items) => ItemsBuilder::of(items.iter().map(sorted))?.list(),
        Value::Tuple(items) => ItemsBuilder::of(items.iter().map(sorted))?.tuple(),
        Value::Dict(dict) => {
            let entries = dict.entries().iter();
            let keyed = entries
                .clone()
                .map(|(key, value)| (key.clone(), (key.clone(), value.clone())));
            let ordered = compare::sort(keyed.collect()).unwrap_or_else(|_| entries.cloned().collect());
            let mut copy = Dict::default();
            for (key, value) in ordered {
                copy.insert(key, sorted(&value)?)?;
            }
            copy.into_value()
        }
        other => other.clone(),
    })
}

fn repr(value: &Value) -> Try<String> {
    let mut out = BoundedText::new();
    print::repr(value, &mut out)?;
    Ok(out.into_string())
}

fn write(value: &Value, place: Place, out: &mut BoundedText) -> Try<()> {
    let _level = enter_level()?;
    let whole = repr(value)?;
    if place.fits(whole.chars().count()) {
        return out.push(&whole);
    }
    let inner = |after: usize| Place {
        indent: place.indent + 1,
        after: place.after + after,
    };
    match value {
        Value::Dict(dict) if !dict.entries().is_empty() => {
            out.push("{")?;
            let count = dict.entries().len();
            for (index, (key, value)) in dict.entries().iter().enumerate() {
                let place = start_item(index, count, inner(1), out)?;
                let key = repr(key)?;
                out.push(&key)?;
                out.push(": ")?;
                let indent = place.indent + key.chars().count() + 2;
                write(value, Place { indent, ..place }, out)?;
            }
            out.push("}")
        }
        Value::List(items) => {
            out.push("[")?;
            for (index, item) in items.iter().enumerate() {
                let place = start_item(index, items.len(), inner(1), out)?;
                write(item, place, out)?;
            }
            out.push("]")
        }
        Value::Tuple(items) => {
            let end = if items.len() == 1 { ",)" } else { ")" };
            out.push("(")?;
            for (index, item) in items.iter().enumerate() {
                let place = start_item(index, items.len(), inner(end.len()), out)?;
                write(item, place, out)?;
            }
            out.push(end)
        }
        Value::Text(text) => write_text(text, place, false, out),
        _ => out.push(&whole),
    }
}

/// Starts the line of an item. Returns where the item is printed.
fn start_item(index: usize, count: usize, place: Place, out: &mut BoundedText) -> Try<Place> {
    if index > 0 {
        out.push(",\n")?;
        out.push_repeated(" ", place.indent)?;
    }
    let after = if index + 1 == count { place.after } else { 1 };
    Ok(Place { after, ..place })
}

/// Writes a string as several literals, broken at line ends and between words.
fn write_text(text: &str, place: Place, outermost: bool, out: &mut BoundedText) -> Try<()> {
    let length = |text: &str| Ok(repr(&Value::text(text)?)?.chars().count());
    let unbroken = Place {
        indent: place.indent - usize::from(outermost),
        after: place.after - usize::from(outermost),
    };
    if text.is_empty() || unbroken.fits(length(text)?) {
        return out.push(&repr(&Value::text(text)?)?);
    }
    let lines: Vec<&str> = split::split_lines(text, true).collect();
    let mut literals: Vec<&str> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let is_last_line = index + 1 == lines.len();
        let room = |last: bool| Place {
            after: if last { place.after } else { 0 },
            ..place
        };
        if room(is_last_line).fits(length(line)?) {
            literals.push(line);
            continue;
        }
        let (mut start, mut end) = (0, 0);
        while end < line.len() {
            let next = end + word_length(&line[end..]);
            let is_last = is_last_line && next == line.len();
            if !room(is_last).fits(length(&line[start..next])?) && start < end {
                literals.push(&line[start..end]);
                start = end;
            }
            end = next;
        }
        literals.push(&line[start..end]);
    }
    let several = outermost && literals.len() > 1;
    if several {
        out.push("(")?;
    }
    for (index, literal) in literals.iter().enumerate() {
        if index > 0 {
            out.push("\n")?;
            out.push_repeated(" ", place.indent)?;
        }
        out.push(&repr(&Value::text(*literal)?)?)?;
    }
    if several { out.push(")") } else { Ok(()) }
}

/// Bytes of the first word and the white space after it.
fn word_length(text: &str) -> usize {
    let word = text.find(char::is_whitespace).unwrap_or(text.len());
    let space = text[word..].find(|c: char| !c.is_whitespace());
    space.map_or(text.len(), |space| word + space)
}
