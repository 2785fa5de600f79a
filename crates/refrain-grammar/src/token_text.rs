//! The text of tokens, as constraints read it.

use llguidance::toktrie::{TokEnv, TokTrie};

/// Decodes tokens to text one by one, special tokens included.
#[derive(Clone)]
pub(crate) struct TokenText {
    tokens: TokEnv,
    /// Bytes of a character that is not complete.
    incomplete: Vec<u8>,
}

impl TokenText {
    pub fn new(tokens: TokEnv) -> TokenText {
        TokenText {
            tokens,
            incomplete: vec![],
        }
    }

    /// The bytes of a token; the name of a special one.
    pub fn bytes(&self, token: u32) -> &[u8] {
        let trie = self.tokens.tok_trie();
        if token as usize >= trie.vocab_size() {
            return &[];
        }
        let bytes = trie.token(token);
        bytes.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER]).unwrap_or(bytes)
    }

    /// Splits text into tokens, not as the model would, but so that a grammar can take them.
    pub fn tokens(&self, bytes: &[u8]) -> Vec<u32> {
        self.tokens.tok_trie().greedy_tokenize(bytes)
    }

    /// Adds a token, and returns the characters that are complete. Invalid bytes become U+FFFD.
    pub fn push(&mut self, token: u32) -> String {
        let mut bytes = std::mem::take(&mut self.incomplete);
        bytes.extend_from_slice(self.bytes(token));
        let mut text = String::new();
        let mut rest = &bytes[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => {
                    let (valid, behind) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        Some(length) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &behind[length..];
                        }
                        None => {
                            self.incomplete = behind.to_vec();
                            return text;
                        }
                    }
                }
            }
        }
    }

    /// Whether the last character is complete.
    pub fn is_complete(&self) -> bool {
        self.incomplete.is_empty()
    }
}
