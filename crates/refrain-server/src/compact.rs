//! Removes the blanks between the tokens of JSON that arrives in pieces.

/// JSON as it arrives.
#[derive(Debug, Default)]
pub(crate) struct CompactJson {
    in_string: bool,
    is_escaped: bool,
}

impl CompactJson {
    /// Returns the next piece without blanks outside of strings.
    pub fn push(&mut self, piece: &str) -> String {
        piece.chars().filter(|c| self.keeps(*c)).collect()
    }

    fn keeps(&mut self, c: char) -> bool {
        if !self.in_string {
            self.in_string = c == '"';
            return !matches!(c, ' ' | '\n' | '\r' | '\t');
        }
        if self.is_escaped {
            self.is_escaped = false;
        } else {
            self.is_escaped = c == '\\';
            self.in_string = c != '"';
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_stay_in_strings_alone() {
        let text = "{\n \"a b\": [1, \"\\\" \\\\\", 2 ]}";
        for (cut, _) in text.char_indices() {
            let mut compact = CompactJson::default();
            let whole = compact.push(&text[..cut]) + &compact.push(&text[cut..]);
            assert_eq!(whole, "{\"a b\":[1,\"\\\" \\\\\",2]}");
        }
    }
}
