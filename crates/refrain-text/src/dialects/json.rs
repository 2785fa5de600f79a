//! Finds the ends of JSON values in a text that arrives piece by piece.

/// Scans one JSON value byte by byte. It finds where the value ends, it does not validate it.
#[derive(Debug, Clone, Default)]
pub(super) struct ValueScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An object or a list.
    Nested,
    Text,
    /// A number, `true`, `false` or `null`, which ends where something else begins.
    Bare,
}

impl ValueScanner {
    /// A scanner that is inside an object or list already.
    pub fn inside() -> ValueScanner {
        ValueScanner {
            depth: 1,
            kind: Some(Kind::Nested),
            ..ValueScanner::default()
        }
    }

    /// Returns how many bytes of `text` belong to the value, and whether the value ends there. The text must begin
    /// where the last call stopped, at first without blanks.
    pub fn scan(&mut self, text: &str) -> (usize, bool) {
        for (at, byte) in text.bytes().enumerate() {
            let kind = *self.kind.get_or_insert(match byte {
                b'{' | b'[' => Kind::Nested,
                b'"' => Kind::Text,
                _ => Kind::Bare,
            });
            if kind == Kind::Bare {
                if byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']' | b'<' | b'`') {
                    return (at, true);
                }
                continue;
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => {
                        self.in_string = false;
                        if kind == Kind::Text {
                            return (at + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                _ => {}
            }
        }
        (text.len(), false)
    }
}

/// Drops the blanks of JSON that stand outside of strings, in a text that arrives piece by piece.
#[derive(Debug, Clone, Default)]
pub(super) struct Compactor {
    in_string: bool,
    escaped: bool,
}

impl Compactor {
    /// Appends a piece to `out`, without blanks.
    pub fn push(&mut self, piece: &str, out: &mut String) {
        for letter in piece.chars() {
            let is_escaped = std::mem::take(&mut self.escaped);
            match letter {
                '\\' if self.in_string => self.escaped = !is_escaped,
                '"' if !is_escaped => self.in_string = !self.in_string,
                _ if !self.in_string && letter.is_whitespace() => continue,
                _ => {}
            }
            out.push(letter);
        }
    }
}

/// The JSON `text` without blanks outside of strings.
pub(super) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    Compactor::default().push(text, &mut out);
    out
}

/// Returns the JSON value at the beginning of `text`, if it is there as a whole.
pub(super) fn leading_value(text: &str) -> Option<&str> {
    let (length, is_whole) = ValueScanner::default().scan(text);
    is_whole.then_some(&text[..length])
}

/// Whether `text` is one JSON value, with numbers of any size.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// `text` as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_end_where_their_brackets_close() {
        assert_eq!(
            leading_value(r#"{"a": "}\"{", "b": [1, {}]} rest"#),
            Some(r#"{"a": "}\"{", "b": [1, {}]}"#)
        );
        assert_eq!(leading_value(r#""a\\" x"#), Some(r#""a\\""#));
        assert_eq!(leading_value("12.5, 3"), Some("12.5"));
        assert_eq!(leading_value("[1, 2"), None);
        assert_eq!(leading_value("tru"), None);
    }

    #[test]
    fn blanks_outside_of_strings_are_dropped() {
        assert_eq!(compact("{ \"a b\\\" \": [1,\n null] }"), "{\"a b\\\" \":[1,null]}");
        assert_eq!(compact("[\"\\\\\", 1]"), "[\"\\\\\",1]");
    }

    #[test]
    fn a_value_may_arrive_byte_by_byte() {
        let text = r#"{"a": "é}", "b": [true]}"#;
        let mut scanner = ValueScanner::default();
        let mut ends = vec![];
        for (at, letter) in text.char_indices() {
            let (length, is_whole) = scanner.scan(&text[at..at + letter.len_utf8()]);
            assert_eq!(length, letter.len_utf8());
            ends.extend(is_whole.then_some(at));
        }
        assert_eq!(ends, [text.len() - 1]);
    }
}
