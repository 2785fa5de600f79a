//! JSON numbers that do not fit 64 bits, kept digit by digit.
//!
//! [`parse`] reads JSON as `serde_json` does, but keeps integers beyond 64 bits and decimals with more digits than a
//! double holds: each becomes an object with one private key. Chat templates print such an object as the number it
//! stands for, [`to_string`] writes it as that number, and [`round`] turns it into the nearest double.

use std::borrow::Cow;

use serde_json::Value;

/// The key of an object that stands for a number.
const KEY: &str = "$refrain.number";

/// Parses JSON and keeps all digits of its numbers.
///
/// # Errors
/// If the text is not JSON.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(&wrapped(text))
}

/// Returns the digits of a number that [`parse`] kept; `None` for any other value.
pub fn literal(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get(KEY)?.as_str().filter(|text| is_number(text))
}

/// Writes a value as JSON, with all digits of the numbers that [`parse`] kept.
pub fn to_string(value: &Value) -> String {
    let text = value.to_string();
    let open = format!("{{\"{KEY}\":\"");
    let (mut written, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, behind)) = rest.split_once(&open) {
        written.push_str(before);
        rest = match behind.split_once("\"}") {
            Some((number, after)) if is_number(number) => {
                written.push_str(number);
                after
            }
            _ => {
                written.push_str(&open);
                behind
            }
        };
    }
    written.push_str(rest);
    written
}

/// Turns the numbers that [`parse`] kept into doubles.
pub fn round(value: &mut Value) {
    if let Some(number) = literal(value) {
        *value = number.parse::<f64>().map_or(Value::Null, Value::from);
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}

/// Wraps the numbers that would lose digits. Other text stays as it is.
fn wrapped(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut written, mut copied, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at + 1),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let end = bytes[at..]
                    .iter()
                    .position(|byte| !is_part(byte))
                    .map_or(bytes.len(), |length| at + length);
                let number = &text[at..end];
                if loses_digits(number) {
                    written.push_str(&text[copied..at]);
                    written.push_str(&format!("{{\"{KEY}\":\"{number}\"}}"));
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    written.push_str(&text[copied..]);
    Cow::Owned(written)
}

/// Returns where the string ends whose content begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Whether a number cannot be held by 64 bits without losing digits. Numbers beyond a double's range are not meant.
fn loses_digits(number: &str) -> bool {
    if number.len() < 16 || !is_number(number) {
        return false;
    }
    if number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return number.parse::<i64>().is_err() && number.parse::<u64>().is_err();
    }
    let nearest = number.parse::<f64>().unwrap_or(f64::INFINITY);
    nearest.is_finite() && digits(number) != digits(&format!("{nearest:e}"))
}

/// Whether a text is a number in JSON's notation.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(all_digits)
        && exponent.is_none_or(all_digits)
}

/// Returns the significant digits of a number.
fn digits(number: &str) -> String {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let all: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    all.trim_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{ChatTemplate, Conversation};

    #[test]
    fn keeps_the_digits_of_numbers_that_do_not_fit_64_bits() {
        for number in [
            "123456789012345678901234567890123456789012",
            "-98765432109876543210",
            "18446744073709551616",
            "0.12345678901234567890123",
            "1.00000000000000000000000000001e5",
        ] {
            let text = format!("{{\"a\":[{number},\"{number}\"],\"b\":1}}");
            let value = parse(&text).unwrap();
            assert_eq!(literal(&value["a"][0]), Some(number));
            assert_eq!(value["a"][1], number);
            assert_eq!(to_string(&value), text);
        }
        for number in [
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "1e300",
            "3.141592653589793",
            "1.50",
        ] {
            assert!(parse(number).unwrap().is_number(), "{number}");
        }
    }

    #[test]
    fn templates_print_all_digits() {
        let source =
            "{% set x = messages[0] %}{{ x.n }} {{ x.n | tojson }} {{ x.n is integer }} {{ x.d }} {{ x.d is float }}";
        let template = ChatTemplate::new(source, BTreeMap::new());
        let (number, decimal) = (
            "123456789012345678901234567890123456789012",
            "0.12345678901234567890123",
        );
        let message = parse(&format!("{{\"n\": {number}, \"d\": {decimal}}}")).unwrap();
        let conversation = Conversation {
            messages: vec![message],
            ..Conversation::default()
        };
        let expected = format!("{number} {number} True {decimal} True");
        assert_eq!(template.render(&conversation, true).unwrap(), expected);
    }

    #[test]
    fn rounds_to_doubles_where_a_field_is_a_number() {
        let mut value = parse("{\"top_p\": 0.90000000000000000000001, \"x\": [98765432109876543210]}").unwrap();
        round(&mut value);
        assert_eq!(value, json!({"top_p": 0.9, "x": [98765432109876543210f64]}));
    }

    #[test]
    fn only_numbers_are_written_without_quotes() {
        let value = json!({"a": {KEY: "1}, {"}, "b": format!("{{\"{KEY}\":\"7\"}}")});
        assert_eq!(serde_json::from_str::<Value>(&to_string(&value)).unwrap(), value);
        assert!(parse("{\"a\": 0123456789012345678901234}").is_err());
        assert!(parse("\"\\\\\", 1").is_err() && parse("\"a").is_err() && parse("\"\\").is_err());
    }
}
