//! Values as Python programs write them, and as Gemma does, turned into JSON.

use super::json::quoted;

/// How strings and keys are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `'text'`, `"text"`, keys are values.
    Python,
    /// `<|"|>text<|"|>`, keys are bare words.
    Gemma,
}

/// The mark around Gemma's strings.
pub(super) const GEMMA_QUOTE: &str = "<|\"|>";

/// The deepest nesting that is read: more would take too much stack.
const MAX_DEPTH: usize = 64;

/// Reads literals from the front of a text.
#[derive(Debug, Clone)]
pub(super) struct LiteralReader<'t> {
    pub rest: &'t str,
    spelling: Spelling,
}

impl<'t> LiteralReader<'t> {
    pub fn new(text: &'t str, spelling: Spelling) -> LiteralReader<'t> {
        LiteralReader { rest: text, spelling }
    }

    /// Skips blanks.
    pub fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `mark` if the text begins with it.
    pub fn take(&mut self, mark: &str) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes a name: letters, digits and what function names contain.
    pub fn name(&mut self) -> Option<&'t str> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    /// Reads a value and returns it as JSON. `None` where the text is no value, or ends within one.
    pub fn value(&mut self) -> Option<String> {
        self.nested_value(0)
    }

    fn nested_value(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.skip_blanks();
        if self.spelling == Spelling::Gemma && self.take(GEMMA_QUOTE) {
            let (text, rest) = self.rest.split_once(GEMMA_QUOTE)?;
            self.rest = rest;
            return Some(quoted(text));
        }
        match self.rest.chars().next()? {
            quote @ ('\'' | '"') => self.string(quote),
            '{' => self.dict(depth),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            _ => self.word(),
        }
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut letters = self.rest[1..].char_indices();
        while let Some((at, letter)) = letters.next() {
            if letter == quote {
                self.rest = &self.rest[1 + at + 1..];
                return Some(quoted(&text));
            }
            if letter != '\\' {
                text.push(letter);
                continue;
            }
            let (_, escape) = letters.next()?;
            match escape {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '0' => text.push('\0'),
                'x' | 'u' | 'U' => {
                    let digits = if escape == 'x' {
                        2
                    } else if escape == 'u' {
                        4
                    } else {
                        8
                    };
                    let hex: String = letters.by_ref().take(digits).map(|(_, digit)| digit).collect();
                    text.push(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32)?);
                }
                '\n' => {}
                other @ ('\'' | '"' | '\\' | '/') => text.push(other),
                other => text.extend(['\\', other]),
            }
        }
        None
    }

    fn dict(&mut self, depth: usize) -> Option<String> {
        self.rest = &self.rest[1..];
        let mut members = vec![];
        loop {
            self.skip_blanks();
            if self.take("}") {
                return Some(format!("{{{}}}", members.join(",")));
            }
            let key = self.key(depth)?;
            self.skip_blanks();
            if !self.take(":") {
                return None;
            }
            let value = self.nested_value(depth + 1)?;
            members.push(format!("{key}:{value}"));
            self.skip_blanks();
            if !self.take(",") && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn key(&mut self, depth: usize) -> Option<String> {
        if self.spelling == Spelling::Gemma && !self.rest.starts_with(GEMMA_QUOTE) {
            let end = self.rest.find(':')?;
            let (key, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(quoted(key.trim()));
        }
        let key = self.nested_value(depth + 1)?;
        Some(if key.starts_with('"') { key } else { quoted(&key) })
    }

    fn list(&mut self, close: char, depth: usize) -> Option<String> {
        self.rest = &self.rest[1..];
        let mut items = vec![];
        loop {
            self.skip_blanks();
            if self.rest.starts_with(close) {
                self.rest = &self.rest[1..];
                return Some(format!("[{}]", items.join(",")));
            }
            items.push(self.nested_value(depth + 1)?);
            self.skip_blanks();
            if !self.take(",") && !self.rest.starts_with(close) {
                return None;
            }
        }
    }

    /// A number or a constant.
    fn word(&mut self) -> Option<String> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let json = match word {
            "True" | "true" => "true".to_owned(),
            "False" | "false" => "false".to_owned(),
            "None" | "null" => "null".to_owned(),
            number if super::json::is_json(number) => number.to_owned(),
            _ => return None,
        };
        self.rest = rest;
        Some(json)
    }
}

/// Reads the whole of `text` as one Python value and returns it as JSON.
pub(super) fn python_value(text: &str) -> Option<String> {
    let mut reader = LiteralReader::new(text, Spelling::Python);
    let value = reader.value()?;
    reader.skip_blanks();
    reader.rest.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_literals_become_json() {
        let cases = [
            ("{'a': [1, None], \"b\": True}", r#"{"a":[1,null],"b":true}"#),
            (r#"'it\'s \u00e9\n'"#, "\"it's é\\n\""),
            ("(1, -2.5e3,)", "[1,-2.5e3]"),
            ("{1: 'x'}", r#"{"1":"x"}"#),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ];
        for (python, json) in cases {
            assert_eq!(python_value(python).as_deref(), Some(json), "{python}");
        }
        for wrong in ["", "[1", "{'a' 1}", "abc", "'open", "1 2", &"[".repeat(100_000)] {
            assert_eq!(python_value(wrong), None, "{}", &wrong[..wrong.len().min(20)]);
        }
    }

    #[test]
    fn gemma_literals_become_json() {
        let text = "{city:<|\"|>Paris \"x\"<|\"|>,deep:{a:[1,None]},on:true}";
        let value = LiteralReader::new(text, Spelling::Gemma).value();
        assert_eq!(
            value.as_deref(),
            Some(r#"{"city":"Paris \"x\"","deep":{"a":[1,null]},"on":true}"#)
        );
    }
}
