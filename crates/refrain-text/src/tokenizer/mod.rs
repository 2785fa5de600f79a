//! Encodes text to token ids and decodes them.

mod bytes;
mod class;
mod directory;
mod growth;
mod stream;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use refrain_formats::EndTokens;
use serde_json::Value;

use crate::{Error, guard};

use growth::{Growth, GrowthSettings};

pub use bytes::TokenBytes;
pub(crate) use directory::DirectoryFiles;
pub use stream::DecodeStream;

/// The error for a panic in the tokenizers library.
pub(crate) const BROKEN_TOKENIZER: &str = "is damaged: the tokenizers library panicked";

/// Number of words that each thread remembers the tokens of. A word has up to 256 bytes and takes up to 8 KB, so the
/// library's default of 10,000 would let strange texts fill 80 MB a thread.
const MAX_CACHED_WORDS: usize = 4096;

/// A tokenizer that encodes and decodes as Hugging Face transformers does.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// A copy that encodes special tokens as plain text; created on first use.
    plain: OnceLock<tokenizers::Tokenizer>,
    eos_ids: Vec<u32>,
    bos_id: Option<u32>,
    growth: Growth,
    /// Special tokens that streams emit as text, with their names.
    visible_special: BTreeMap<u32, String>,
}

impl Tokenizer {
    pub(crate) fn new(mut inner: tokenizers::Tokenizer, bos_id: Option<u32>, eos_ids: Vec<u32>) -> Result<Self, Error> {
        // Some published files keep the settings of their last training run. Prompts must never be truncated or
        // padded.
        inner.with_truncation(None).map_err(library)?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(false);
        let mut model = inner.get_model().clone();
        model.resize_cache(MAX_CACHED_WORDS);
        inner.with_model(model);
        let settings = GrowthSettings::of(&inner).map_err(|error| Error::Tokenizer(error.to_string()))?;
        Ok(Tokenizer {
            growth: Growth::of(&settings).map_err(Error::Tokenizer)?,
            inner,
            plain: OnceLock::new(),
            eos_ids,
            bos_id,
            visible_special: BTreeMap::new(),
        })
    }

    /// Adds the end tokens `ids` of the model's configuration, which come first.
    ///
    /// Files often disagree: one of them is stale, or lists too few. The tokenizer's own end tokens and the special
    /// tokens known to end a reply by name count too, so that no reply runs past its end.
    pub fn with_eos_ids(mut self, ids: &[u32]) -> Self {
        let added = self.inner.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special);
        let known = EndTokens::among(special.map(|(id, token)| (*id, token.content.as_str())));
        self.eos_ids = known.join([ids, &self.eos_ids]);
        self
    }

    /// Makes streams emit the special tokens that occur in one of `marks`, even if they skip special tokens.
    pub fn show_special(mut self, marks: &[&str]) -> Self {
        let added = self.inner.get_added_tokens_decoder();
        let wanted = added.into_iter().filter(|(_, token)| {
            token.special && !token.content.is_empty() && marks.iter().any(|mark| mark.contains(&token.content))
        });
        self.visible_special = wanted.map(|(id, token)| (id, token.content)).collect();
        self
    }

    /// Serialises it as `tokenizer.json`.
    ///
    /// # Errors
    /// If it cannot be serialised.
    pub fn to_json(&self) -> Result<Value, Error> {
        serde_json::to_value(&self.inner).map_err(|error| Error::Tokenizer(error.to_string()))
    }

    /// Encodes `text` to token ids.
    ///
    /// With `special`, the tokenizer's BOS and EOS are added, and special tokens in the text become their ids.
    /// Without it, nothing is added and special tokens are encoded as plain text.
    ///
    /// # Errors
    /// If the tokenizer cannot represent the text, or it could grow too long during encoding.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, Error> {
        self.encode_with(text, special, special)
    }

    /// Encodes a rendered chat template. Special tokens in it become their ids; none are added, since the template
    /// wrote them all.
    ///
    /// # Errors
    /// If the tokenizer cannot represent the text, or it could grow too long during encoding.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode_with(text, false, true)
    }

    fn encode_with(&self, text: &str, add: bool, parse: bool) -> Result<Vec<u32>, Error> {
        self.growth.check(text.len()).map_err(Error::Tokenizer)?;
        let tokenizer = if parse {
            &self.inner
        } else {
            self.plain.get_or_init(|| {
                let mut plain = self.inner.clone();
                plain.set_encode_special_tokens(true);
                plain
            })
        };
        let encoding = guarded(|| tokenizer.encode_fast(text, add))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes `ids`; with `skip_special`, special tokens are left out. Invalid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// If an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Error> {
        if let Some(id) = ids.iter().find(|id| self.inner.id_to_token(**id).is_none()) {
            return Err(Error::Tokenizer(format!(
                "token id {id} is not in the vocabulary of {} tokens",
                self.vocab_size()
            )));
        }
        guarded(|| self.inner.decode(ids, skip_special))
    }

    /// Returns a decoder for tokens that arrive one by one.
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream::new(&self.inner, &self.visible_special, skip_special)
    }

    /// Whether streams write this special token although they leave out special tokens.
    pub fn writes_special(&self, id: u32) -> bool {
        self.visible_special.contains_key(&id)
    }

    /// Number of tokens, added ones included. The model's own vocabulary is often padded beyond it.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Returns the id of a token by its exact name in the vocabulary, such as `<|im_end|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the name of a token in the vocabulary. This is not its text: byte-level names encode bytes.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Tokens that end a reply.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// The beginning-of-text token, if there is one. Whether it is added is up to the tokenizer.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("bos_id", &self.bos_id)
            .field("eos_ids", &self.eos_ids)
            .finish_non_exhaustive()
    }
}

/// Calls the library and converts its errors and panics.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    match guard::catch_panic(work) {
        Some(result) => result.map_err(library),
        None => Err(Error::Tokenizer(BROKEN_TOKENIZER.to_owned())),
    }
}

fn library(error: tokenizers::Error) -> Error {
    Error::Tokenizer(error.to_string())
}
