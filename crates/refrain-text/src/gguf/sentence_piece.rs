//! SentencePiece BPE (`llama`): tokens with scores, `▁` for spaces, and byte fallback for unknown characters.

use std::collections::HashMap;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::{NormalizerWrapper, Tokenizer};

use refrain_formats::{GgufKeys, GgufVocabulary, TokenKind};

use super::{TokenizerDefaults, ids};
use crate::Error;

/// SentencePiece's mark for a space.
const SPACE: &str = "▁";

/// Builds the tokenizer.
pub(super) fn build(
    keys: &GgufKeys<'_>,
    vocabulary: &GgufVocabulary<'_>,
) -> Result<(Tokenizer, TokenizerDefaults), Error> {
    let Some(scores) = keys.numbers("tokenizer.ggml.scores")? else {
        return Err(keys.error("its tokenizer has no scores (metadata tokenizer.ggml.scores)"));
    };
    if scores.len() != vocabulary.tokens.len() {
        return Err(keys.error(format!(
            "metadata tokenizer.ggml.scores has {} entries for {} tokens",
            scores.len(),
            vocabulary.tokens.len()
        )));
    }
    let broken = |error: &dyn std::fmt::Display| keys.error(format!("broken tokenizer: {error}"));
    let mut model = BPE::builder()
        .vocab_and_merges(
            ids(vocabulary, keys)?.into_iter().collect::<Vocab>(),
            merges(vocabulary, &scores),
        )
        .fuse_unk(true)
        .byte_fallback(true);
    let unknown = vocabulary.kinds.iter().position(|kind| *kind == TokenKind::Unknown);
    if let Some(unknown) = unknown {
        model = model.unk_token(vocabulary.tokens[unknown].to_owned());
    }
    let mut tokenizer = Tokenizer::new(model.build().map_err(|error| broken(&error))?);
    let prefix = keys.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if prefix {
        normalizers.push(Prepend::new(SPACE.to_owned()).into());
    }
    normalizers.push(Replace::new(" ", SPACE).map_err(|error| broken(&error))?.into());
    tokenizer
        .with_normalizer(Some(Normalizers::new(normalizers)))
        .map_err(|error| broken(&error))?;
    let mut decoders: Vec<DecoderWrapper> = vec![
        Replace::new(SPACE, " ").map_err(|error| broken(&error))?.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if prefix {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok((tokenizer, TokenizerDefaults { bos: true, eos: false }))
}

/// Derives the merges from the vocabulary. SentencePiece joins the neighbours whose union scores highest, so every
/// split of a token into two tokens is a merge ranked by the token's score.
fn merges(vocabulary: &GgufVocabulary<'_>, scores: &[f64]) -> Vec<(String, String)> {
    let mergeable = |id: usize| matches!(vocabulary.kinds[id], TokenKind::Normal | TokenKind::UserDefined);
    let ids: HashMap<&str, usize> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| mergeable(*id))
        .map(|(id, token)| (*token, id))
        .collect();
    let mut found = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if !mergeable(id) || token.len() > MAX_MERGED_BYTES {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                found.push(CandidateMerge {
                    score: scores[id],
                    lengths: (left.chars().count(), right.chars().count()),
                    ids: (id, left_id, right_id),
                    pair: (left.to_owned(), right.to_owned()),
                });
            }
        }
    }
    found.sort_by(CandidateMerge::rank);
    found.into_iter().map(|merge| merge.pair).collect()
}

/// Longest token in bytes for which merges are derived. No published vocabulary builds longer ones.
const MAX_MERGED_BYTES: usize = 512;

struct CandidateMerge {
    score: f64,
    /// Length in characters of the left and right side.
    lengths: (usize, usize),
    /// Ids of the union, the left and the right side.
    ids: (usize, usize, usize),
    pair: (String, String),
}

impl CandidateMerge {
    /// Orders best first, as transformers does when it converts such a vocabulary.
    fn rank(&self, other: &CandidateMerge) -> std::cmp::Ordering {
        let by_score = other.score.total_cmp(&self.score);
        let by_length = other.lengths.cmp(&self.lengths);
        by_score.then(by_length).then(self.ids.cmp(&other.ids))
    }
}
