//! Text to token ids and back.

mod bytes;
mod class;
mod directory;
mod growth;
mod stream;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::{Error, guard};

use growth::{Growth, GrowthSettings};

pub use bytes::TokenBytes;
pub(crate) use directory::DirectoryFiles;
pub use stream::DecodeStream;

/// What to say where the library panics.
pub(crate) const BROKEN_TOKENIZER: &str = "is damaged: the tokenizer library breaks down on it";

/// A tokenizer: text to token ids and back, as Hugging Face transformers does it.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// A copy that takes special tokens in the text as plain text; made when first needed.
    plain: OnceLock<tokenizers::Tokenizer>,
    eos_ids: Vec<u32>,
    bos_id: Option<u32>,
    growth: Growth,
    /// Special tokens that belong to the text, with their names.
    shown: BTreeMap<u32, String>,
}

impl Tokenizer {
    pub(crate) fn new(mut inner: tokenizers::Tokenizer, bos_id: Option<u32>, eos_ids: Vec<u32>) -> Result<Self, Error> {
        // Some published files carry the settings of their last training run. Nobody who encodes a
        // prompt wants it cut or padded.
        inner.with_truncation(None).map_err(library)?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(false);
        let settings = GrowthSettings::of(&inner).map_err(|error| Error::Tokenizer(error.to_string()))?;
        Ok(Tokenizer {
            growth: Growth::of(&settings).map_err(Error::Tokenizer)?,
            inner,
            plain: OnceLock::new(),
            eos_ids,
            bos_id,
            shown: BTreeMap::new(),
        })
    }

    /// Add the tokens that end a text according to the generation configuration.
    pub fn with_eos_ids(mut self, ids: &[u32]) -> Self {
        if !ids.is_empty() {
            self.eos_ids = ids.to_owned();
        }
        self
    }

    /// Let streams give out the special tokens that are part of one of `marks`, though they leave out others.
    pub fn show(mut self, marks: &[&str]) -> Self {
        let added = self.inner.get_added_tokens_decoder();
        let wanted = added.into_iter().filter(|(_, token)| {
            token.special && !token.content.is_empty() && marks.iter().any(|mark| mark.contains(&token.content))
        });
        self.shown = wanted.map(|(id, token)| (id, token.content)).collect();
        self
    }

    /// The whole of it as `tokenizer.json` has it.
    ///
    /// # Errors
    /// If it cannot be said so.
    pub fn to_json(&self) -> Result<Value, Error> {
        serde_json::to_value(&self.inner).map_err(|error| Error::Tokenizer(error.to_string()))
    }

    /// Token ids of `text`.
    ///
    /// With `special`, the tokens that this tokenizer puts around a text (BOS, EOS) are added, and
    /// special tokens written in the text become their ids. Without it, nothing is added and they
    /// are taken as plain text.
    ///
    /// # Errors
    /// If the tokenizer cannot represent the text, or it could grow too long on the way.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, Error> {
        self.encode_with(text, special, special)
    }

    /// Token ids of a rendered chat template: special tokens in it become their ids, and none are
    /// added, since the template has written them all.
    ///
    /// # Errors
    /// If the tokenizer cannot represent the text, or it could grow too long on the way.
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

    /// The text of `ids`; with `skip_special`, special tokens are left out of it. Bytes that are
    /// not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// If an id is none of this tokenizer's.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Error> {
        if let Some(id) = ids.iter().find(|id| self.inner.id_to_token(**id).is_none()) {
            return Err(Error::Tokenizer(format!(
                "token id {id} is not in the vocabulary of {} tokens",
                self.vocab_size()
            )));
        }
        guarded(|| self.inner.decode(ids, skip_special))
    }

    /// Decode token by token, as they are generated.
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream::new(&self.inner, &self.shown, skip_special)
    }

    /// Number of tokens, added ones included. The model's own vocabulary is often padded beyond
    /// it.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The id of a token by its exact name in the vocabulary, such as `<|im_end|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The name of a token in the vocabulary (not its text: byte-level names encode bytes).
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Tokens that end a text.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }

    /// The token that begins a text, if there is one (whether it is put there is the tokenizer's
    /// own affair).
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

/// What the library does, with its errors and panics as ours.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    match guard::run(work) {
        Some(result) => result.map_err(library),
        None => Err(Error::Tokenizer(BROKEN_TOKENIZER.to_owned())),
    }
}

fn library(error: tokenizers::Error) -> Error {
    Error::Tokenizer(error.to_string())
}
