//! The bytes that each token stands for.

use std::collections::HashMap;

use super::Tokenizer;

/// A token as part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBytes {
    /// The bytes that it appends to a text. A character may span several tokens.
    pub bytes: Vec<u8>,
    /// Whether it is a control token and not text; `bytes` is then its name.
    pub is_special: bool,
}

/// How a vocabulary writes bytes.
enum Spelling {
    /// One character per byte.
    ByteLevel(HashMap<char, u8>),
    /// As text, with `▁` for spaces, and possibly `<0x0A>` for bytes that are not characters.
    Pieces { bytes_by_name: bool },
}

impl Tokenizer {
    /// Returns what each token id stands for; `None` for unused ids.
    pub fn vocabulary(&self) -> Vec<Option<TokenBytes>> {
        let spelling = Spelling::of(self);
        let added = self.inner.get_added_tokens_decoder();
        let names = self.inner.get_vocab(true);
        let count = names.values().max().map_or(0, |last| *last as usize + 1);
        let mut vocabulary = vec![None; count];
        for (name, id) in names {
            vocabulary[id as usize] = Some(match added.get(&id) {
                Some(token) => TokenBytes {
                    bytes: token.content.clone().into_bytes(),
                    is_special: token.special,
                },
                None => TokenBytes {
                    bytes: spelling.bytes(&name),
                    is_special: false,
                },
            });
        }
        vocabulary
    }
}

impl Spelling {
    fn of(tokenizer: &Tokenizer) -> Spelling {
        let decoder = serde_json::to_string(&tokenizer.inner.get_decoder()).unwrap_or_default();
        if decoder.contains("\"ByteLevel\"") {
            Spelling::ByteLevel(byte_characters())
        } else {
            Spelling::Pieces {
                bytes_by_name: decoder.contains("\"ByteFallback\""),
            }
        }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        match self {
            Spelling::ByteLevel(bytes) => {
                let known: Option<Vec<u8>> = name.chars().map(|c| bytes.get(&c).copied()).collect();
                known.unwrap_or_else(|| name.as_bytes().to_vec())
            }
            Spelling::Pieces { bytes_by_name } => {
                let digits = name.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match byte.filter(|_| *bytes_by_name) {
                    Some(byte) => vec![byte],
                    None => name.replace('▁', " ").into_bytes(),
                }
            }
        }
    }
}

/// The characters for bytes in byte-level vocabularies: printable bytes map to themselves, the others in order from
/// U+0100 on.
fn byte_characters() -> HashMap<char, u8> {
    let is_seen = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let seen = (0..=u8::MAX).filter(is_seen).map(|byte| (char::from(byte), byte));
    let others = (0..=u8::MAX).filter(|byte| !is_seen(byte));
    let others = ('\u{100}'..).zip(others);
    seen.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::{Spelling, byte_characters};

    #[test]
    fn each_byte_has_a_character_of_its_own() {
        let bytes = byte_characters();
        assert_eq!(bytes.len(), 256);
        let spelling = Spelling::ByteLevel(bytes);
        assert_eq!(spelling.bytes("Ġa"), b" a");
        assert_eq!(spelling.bytes("ĊÃ©"), "\né".as_bytes());
        assert_eq!(spelling.bytes("日"), "日".as_bytes());
    }

    #[test]
    fn pieces_are_text_but_for_spaces_and_bytes_by_name() {
        let spelling = Spelling::Pieces { bytes_by_name: true };
        assert_eq!(spelling.bytes("▁the"), b" the");
        assert_eq!(spelling.bytes("<0x0A>"), b"\n");
        let without = Spelling::Pieces { bytes_by_name: false };
        assert_eq!(without.bytes("<0x0A>"), b"<0x0A>");
    }
}
