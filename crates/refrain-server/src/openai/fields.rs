//! Reads the fields of a request one by one, as clients write them: integers as floats, null for an absent field.

use serde_json::{Map, Value};

use crate::body;
use crate::error::Refusal;

/// The fields of a request that were not read yet.
pub(crate) struct FieldReader(Map<String, Value>);

impl FieldReader {
    pub fn new(fields: Map<String, Value>) -> FieldReader {
        FieldReader(fields)
    }

    /// Returns a field of any type; `None` if it is absent or null.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        #[cfg(test)]
        NAMES.with_borrow_mut(|names| names.insert(name.to_owned()));
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Returns the field as what `read` makes of it.
    fn read<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let wrong = || Refusal::field(name, format!("expected {expected}, not {}", body::kind(&value)));
        read(&value).map(Some).ok_or_else(wrong)
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Refusal> {
        self.read(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub fn texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(index) = items.iter().position(|item| !item.is_string()) {
            let why = format!(
                "expected a list of strings, but item {index} is {}",
                body::kind(&items[index])
            );
            return Err(Refusal::field(name, why));
        }
        let wrong = || Refusal::field(name, format!("expected a list of strings, not {}", body::kind(&value)));
        texts(&value).map(Some).ok_or_else(wrong)
    }

    /// Returns a string, or a list of strings.
    pub fn text_or_texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Refusal> {
        self.read(name, "a string or a list of strings", |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            value => texts(value),
        })
    }

    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Refusal> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub fn number(&mut self, name: &'static str) -> Result<Option<f32>, Refusal> {
        self.read(name, "a number", |value| {
            Some(value.as_f64()? as f32).filter(|number| number.is_finite())
        })
    }

    /// Returns an integer, which may be written as a float.
    pub fn integer(&mut self, name: &'static str) -> Result<Option<i64>, Refusal> {
        self.read(name, "an integer", integer)
    }

    /// Returns an integer from 0 on.
    pub fn count(&mut self, name: &'static str) -> Result<Option<usize>, Refusal> {
        self.read(name, "an integer from 0 on", count)
    }

    /// Returns integers from 0 on.
    pub fn ids(&mut self, name: &'static str) -> Result<Option<Vec<u32>>, Refusal> {
        self.read(name, "a list of token ids", |value| {
            let id = |value: &Value| u32::try_from(count(value)?).ok();
            value.as_array()?.iter().map(id).collect()
        })
    }

    /// Returns a limit of tokens, where -1 is no limit.
    pub fn limit(&mut self, name: &'static str) -> Result<Option<usize>, Refusal> {
        let limit = |value: &Value| match integer(value) {
            Some(-1) => Some(usize::MAX),
            _ => count(value),
        };
        self.read(name, "an integer from 0 on, or -1 for no limit", limit)
    }

    /// Returns a seed: any number, of which all bits count.
    pub fn seed(&mut self, name: &'static str) -> Result<Option<u64>, Refusal> {
        self.read(name, "an integer", |value| {
            let signed = integer(value).map(|seed| seed as u64);
            value.as_u64().or(signed).or_else(|| value.as_f64().map(f64::to_bits))
        })
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    value.as_array()?.iter().map(text).collect()
}

fn integer(value: &Value) -> Option<i64> {
    let float = || {
        value
            .as_f64()
            .filter(|number| number.fract() == 0.0 && number.abs() < 9e18)
    };
    value.as_i64().or_else(|| float().map(|number| number as i64))
}

fn count(value: &Value) -> Option<usize> {
    let large = || value.as_f64().filter(|number| *number >= 9e18 && number.is_finite());
    match integer(value) {
        Some(number) => usize::try_from(number).ok(),
        None => large().map(|_| usize::MAX),
    }
}

#[cfg(test)]
thread_local! {
    /// The names of all fields that this thread asked for.
    static NAMES: std::cell::RefCell<std::collections::BTreeSet<String>> = const { std::cell::RefCell::new(std::collections::BTreeSet::new()) };
}

/// Returns the names of the fields that `read` asks for.
#[cfg(test)]
pub(crate) fn names_read(read: impl FnOnce()) -> std::collections::BTreeSet<String> {
    NAMES.take();
    read();
    NAMES.take()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reader(value: Value) -> FieldReader {
        let Value::Object(fields) = json!({"x": value}) else {
            unreachable!()
        };
        FieldReader::new(fields)
    }

    #[test]
    fn integers_may_be_floats_and_of_any_size() {
        assert_eq!(reader(json!(40.0)).count("x").unwrap(), Some(40));
        assert_eq!(reader(json!(-1.0)).integer("x").unwrap(), Some(-1));
        assert_eq!(reader(json!(-1)).limit("x").unwrap(), Some(usize::MAX));
        assert_eq!(reader(json!(1e300)).count("x").unwrap(), Some(usize::MAX));
        assert_eq!(reader(json!(u64::MAX)).seed("x").unwrap(), Some(u64::MAX));
        assert_eq!(reader(json!(-1)).seed("x").unwrap(), Some(u64::MAX));
        assert!(reader(json!(1e40)).seed("x").unwrap().is_some());
        assert_eq!(reader(Value::Null).count("x").unwrap(), None);
    }

    #[test]
    fn errors_name_the_field_and_what_it_should_be() {
        let refused = |why: Result<_, Refusal>| why.unwrap_err().to_string();
        let count = |value: Value| refused(reader(value).count("x").map(drop));
        assert_eq!(
            count(json!("1")),
            "x: expected an integer from 0 on, not the string \"1\""
        );
        assert_eq!(count(json!(1.5)), "x: expected an integer from 0 on, not 1.5");
        assert_eq!(count(json!(-2)), "x: expected an integer from 0 on, not -2");
        assert!(refused(reader(json!(1e39)).number("x").map(drop)).contains("x: expected a number"));
        assert_eq!(
            refused(reader(json!(["a", 1])).texts("x").map(drop)),
            "x: expected a list of strings, but item 1 is 1"
        );
        assert!(refused(reader(json!("a")).texts("x").map(drop)).contains("a list of strings, not the string"));
        assert!(refused(reader(json!(["a", 1])).text_or_texts("x").map(drop)).contains("list of strings"));
    }
}
