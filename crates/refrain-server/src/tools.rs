//! Calls of functions in an answer, as Qwen, Hermes and others write them: `<tool_call>{"name": …, "arguments": …}</tool_call>`.

use serde_json::{Value, json};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// Around a call.
pub(crate) const MARKS: [&str; 2] = [OPEN, CLOSE];

/// Tells calls from text in an answer that comes piece by piece.
#[derive(Default)]
pub(crate) struct CallSplitter {
    /// What is not certain yet: the beginning of a mark, or of a call.
    held: String,
    /// Whether nothing but blanks came since a call.
    is_behind_call: bool,
}

/// What a piece brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CallsAndText {
    pub text: String,
    /// Names and arguments, as JSON.
    pub calls: Vec<(String, String)>,
}

impl CallSplitter {
    pub fn push(&mut self, piece: &str) -> CallsAndText {
        self.held.push_str(piece);
        self.drop_blanks();
        let mut found = CallsAndText::default();
        while let Some(open) = self.held.find(OPEN) {
            let Some(length) = self.held[open..].find(CLOSE) else {
                found.text.extend(self.held.drain(..open));
                return found;
            };
            found.text.push_str(&self.held[..open]);
            let end = open + length + CLOSE.len();
            match parse(&self.held[open + OPEN.len()..open + length]) {
                Some(call) => {
                    found.calls.push(call);
                    self.is_behind_call = true;
                }
                // What is no call is text.
                None => found.text.push_str(&self.held[open..end]),
            }
            self.held.drain(..end);
            self.drop_blanks();
        }
        let begun = (1..OPEN.len())
            .rev()
            .find(|&length| self.held.ends_with(&OPEN[..length]));
        let certain = self.held.len() - begun.unwrap_or(0);
        found.text.extend(self.held.drain(..certain));
        found
    }

    /// Drops the blanks between calls.
    fn drop_blanks(&mut self) {
        if self.is_behind_call {
            let blanks = self.held.len() - self.held.trim_start().len();
            self.held.drain(..blanks);
            self.is_behind_call = self.held.is_empty();
        }
    }

    /// What was held back at the end.
    pub fn finish(&mut self) -> CallsAndText {
        let held = std::mem::take(&mut self.held);
        // Some models leave the end of the last call out.
        match held.strip_prefix(OPEN).and_then(parse) {
            Some(call) => CallsAndText {
                calls: vec![call],
                ..CallsAndText::default()
            },
            None => CallsAndText {
                text: held,
                calls: vec![],
            },
        }
    }
}

fn parse(call: &str) -> Option<(String, String)> {
    let call: Value = serde_json::from_str(call.trim()).ok()?;
    let arguments = call
        .get("arguments")
        .or(call.get("parameters"))
        .cloned()
        .unwrap_or(json!({}));
    let arguments = match arguments {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Some((call["name"].as_str()?.to_owned(), arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&str]) -> CallsAndText {
        let mut splitter = CallSplitter::default();
        let mut all = CallsAndText::default();
        let mut add = |found: CallsAndText| {
            all.text.push_str(&found.text);
            all.calls.extend(found.calls);
        };
        for piece in pieces {
            add(splitter.push(piece));
        }
        add(splitter.finish());
        all
    }

    #[test]
    fn calls_are_told_from_text_however_pieces_fall() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n\
                    <tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
        let whole = split(&[text]);
        assert_eq!(whole.text, "Let me see.\n");
        let calls = [("f", "{\"x\":1}"), ("g", "{}")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(whole.calls, calls);
        let characters: Vec<String> = text.chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        assert_eq!(split(&characters), whole);
        for size in 2..20 {
            let pieces: Vec<&str> = text
                .as_bytes()
                .chunks(size)
                .map(|c| std::str::from_utf8(c).unwrap())
                .collect();
            assert_eq!(split(&pieces), whole, "{size}");
        }
    }

    #[test]
    fn what_is_no_call_stays_text() {
        assert_eq!(split(&["a < b <tool"]).text, "a < b <tool");
        assert_eq!(
            split(&["<tool_call>nonsense</tool_call> x"]).text,
            "<tool_call>nonsense</tool_call> x"
        );
        assert_eq!(split(&["<tool_call>{\"name\":"]).text, "<tool_call>{\"name\":");
        let unended = split(&["<tool_call>{\"name\": \"f\"}"]);
        assert_eq!(unended.calls, [("f".to_owned(), "{}".to_owned())]);
    }
}
