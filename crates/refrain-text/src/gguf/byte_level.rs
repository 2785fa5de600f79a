//! Byte-level BPE (`gpt2`): tokens in the byte-to-character alphabet, and a list of merges.

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use refrain_formats::{GgufKeys, GgufVocabulary};

use super::{TokenizerDefaults, ids, merges, pre_tokenizers};
use crate::Error;

/// Builds the tokenizer.
pub(super) fn build(
    keys: &GgufKeys<'_>,
    vocabulary: &GgufVocabulary<'_>,
) -> Result<(Tokenizer, TokenizerDefaults), Error> {
    let name = keys.string("tokenizer.ggml.pre")?.unwrap_or("default");
    let Some(pre) = pre_tokenizers::find(name) else {
        let reason = format!(
            "pre-tokenizer {name:?} is not supported (supported: {})",
            pre_tokenizers::names()
        );
        return Err(keys.error(reason));
    };
    let merges = merges(keys)?;
    let broken = |error: &dyn std::fmt::Display| keys.error(format!("broken tokenizer: {error}"));
    let model = BPE::builder()
        .vocab_and_merges(ids(vocabulary, keys)?.into_iter().collect::<Vocab>(), merges)
        .ignore_merges(pre.whole_words)
        .build()
        .map_err(|error| broken(&error))?;
    let mut tokenizer = Tokenizer::new(model);
    if pre.nfc {
        tokenizer.with_normalizer(Some(NFC)).map_err(|error| broken(&error))?;
    }
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for pattern in pre.patterns {
        let split = Split::new(
            SplitPattern::Regex((*pattern).to_owned()),
            SplitDelimiterBehavior::Isolated,
            false,
        );
        steps.push(split.map_err(|error| broken(&error))?.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    let defaults = TokenizerDefaults {
        bos: pre.adds_bos,
        eos: pre.adds_eos,
    };
    Ok((tokenizer, defaults))
}
