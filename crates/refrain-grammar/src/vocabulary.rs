//! A tokenizer's vocabulary as the library sees it.

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenizerEnv};
use refrain_text::{TextEncoder, TokenBytes, Tokenizer};

/// The tokens of a byte-level tokenizer, and the ones that it writes for a text. Where a grammar leaves only one text,
/// these are forced instead of any tokens of the same bytes.
pub(crate) struct CanonicalTokens {
    trie: TokTrie,
    encoder: TextEncoder,
}

impl CanonicalTokens {
    pub fn new(tokenizer: &Tokenizer) -> CanonicalTokens {
        CanonicalTokens {
            trie: trie(tokenizer),
            encoder: tokenizer.text_encoder(),
        }
    }
}

impl TokenizerEnv for CanonicalTokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let text = std::str::from_utf8(bytes).ok();
        let tokens = text.and_then(|text| self.encoder.encode(text).ok());
        // Tokenizers that normalise may write other bytes.
        let exact = tokens.filter(|tokens| self.trie.decode_raw(tokens) == bytes);
        exact.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}

/// Builds the trie of all tokens by their bytes. Special tokens match no text.
pub(crate) fn trie(tokenizer: &Tokenizer) -> TokTrie {
    let written = |token: Option<TokenBytes>| match token {
        Some(TokenBytes { bytes, is_special }) if is_special => [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat(),
        Some(TokenBytes { bytes, .. }) => bytes,
        None => vec![],
    };
    let mut words: Vec<Vec<u8>> = tokenizer.vocabulary().into_iter().map(written).collect();
    let mut ends: Vec<u32> = (tokenizer.eos_ids().iter().copied())
        .filter(|id| (*id as usize) < words.len())
        .collect();
    if ends.is_empty() {
        // The trie needs an end token: this one is never sampled.
        ends.push(words.len() as u32);
        words.push(b"\xff<|end|>".to_vec());
    }
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    TokTrie::from(&info, &words).with_eos_tokens(&ends)
}
