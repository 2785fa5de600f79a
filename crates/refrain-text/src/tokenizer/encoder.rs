//! Encodes plain text without the tokenizer around it.

use std::sync::Arc;

use super::growth::Growth;
use super::{Tokenizer, guarded};
use crate::Error;

/// What [`Tokenizer::encode`] does without special tokens, for owners that outlive the tokenizer.
#[derive(Clone)]
pub struct TextEncoder {
    tokenizer: Arc<tokenizers::Tokenizer>,
    growth: Growth,
}

impl Tokenizer {
    /// Returns an encoder of plain text, which shares this tokenizer's vocabulary.
    pub fn text_encoder(&self) -> TextEncoder {
        TextEncoder {
            tokenizer: self.plain().clone(),
            growth: self.growth,
        }
    }
}

impl TextEncoder {
    /// Encodes `text` to token ids. Special tokens in it are encoded as plain text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.growth.check(text.len()).map_err(Error::Tokenizer)?;
        let encoding = guarded(|| self.tokenizer.encode_fast(text, false))?;
        Ok(encoding.get_ids().to_vec())
    }
}
