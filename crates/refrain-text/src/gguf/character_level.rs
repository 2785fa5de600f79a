//! BPE over characters (`gemma4`): literal tokens, `▁` for spaces, a list of merges, and byte fallback for unknown
//! characters.

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::replace::Replace;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use refrain_formats::{GgufKeys, GgufVocabulary, TokenKind};

use super::{TokenizerDefaults, ids, merges};
use crate::Error;

/// Builds the tokenizer.
pub(super) fn build(
    keys: &GgufKeys<'_>,
    vocabulary: &GgufVocabulary<'_>,
) -> Result<(Tokenizer, TokenizerDefaults), Error> {
    let broken = |error: &dyn std::fmt::Display| keys.error(format!("broken tokenizer: {error}"));
    let mut model = BPE::builder()
        .vocab_and_merges(ids(vocabulary, keys)?.into_iter().collect::<Vocab>(), merges(keys)?)
        .fuse_unk(true)
        .byte_fallback(true);
    if let Some(unknown) = vocabulary.kinds.iter().position(|kind| *kind == TokenKind::Unknown) {
        model = model.unk_token(vocabulary.tokens[unknown].to_owned());
    }
    let mut tokenizer = Tokenizer::new(model.build().map_err(|error| broken(&error))?);
    let spaces = |from: &str, to: &str| Replace::new(from, to).map_err(|error| broken(&error));
    tokenizer
        .with_normalizer(Some(spaces(" ", "▁")?))
        .map_err(|error| broken(&error))?;
    // Only runs of line feeds are split off.
    let lines = SplitPattern::Regex(r"[^\n]+|\n+".to_owned());
    let lines = Split::new(lines, SplitDelimiterBehavior::Isolated, false).map_err(|error| broken(&error))?;
    tokenizer.with_pre_tokenizer(Some(lines));
    let decoders = vec![spaces("▁", " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    tokenizer.with_decoder(Some(Sequence::new(decoders)));
    Ok((tokenizer, TokenizerDefaults { bos: true, eos: false }))
}
