//! Builds the tokenizer from a GGUF file's metadata.

mod byte_level;
mod character_level;
mod pre_tokenizers;
mod sentence_piece;

use std::collections::BTreeMap;

use refrain_formats::{GgufKeys, GgufVocabulary, TokenKind};
use tokenizers::processors::template::TemplateProcessing;

pub use pre_tokenizers::name_of as pre_tokenizer_name;

use crate::tokenizer::BROKEN_TOKENIZER;
use crate::{ChatTemplate, Error, Tokenizer, guard};

/// Values of `tokenizer.ggml.model` in files without a vocabulary.
const NO_VOCABULARY: [&str; 2] = ["no_vocab", "none"];

/// A token that only Phi-3's vocabulary has.
const PHI_3_TOKEN: &str = "<|placeholder1|>";
/// Special tokens of Phi-3 that keep the white space after them; all its other special tokens strip it.
const KEEPS_WHITE_SPACE: [&str; 3] = ["<s>", "<unk>", "<|endoftext|>"];

/// Whether BOS and EOS are added when the file does not say.
struct TokenizerDefaults {
    bos: bool,
    eos: bool,
}

/// Returns control tokens as special tokens and user-defined ones as plain added tokens.
fn added_tokens(vocabulary: &GgufVocabulary<'_>) -> Vec<tokenizers::AddedToken> {
    // GGUF has no key for this; llama.cpp decides by the model's name.
    let phi_3 = vocabulary.tokens.contains(&PHI_3_TOKEN);
    let added = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    added
        .filter_map(|(token, kind)| match kind {
            TokenKind::Control | TokenKind::Unknown => Some((token, true)),
            TokenKind::UserDefined => Some((token, false)),
            _ => None,
        })
        .map(|(token, special)| {
            let strips = phi_3 && !KEEPS_WHITE_SPACE.contains(token);
            tokenizers::AddedToken::from(*token, special)
                .normalized(false)
                .rstrip(strips)
        })
        .collect()
}

/// Returns (token, id) pairs; refuses duplicate tokens.
fn ids(vocabulary: &GgufVocabulary<'_>, keys: &GgufKeys<'_>) -> Result<Vec<(String, u32)>, Error> {
    let mut seen = std::collections::HashMap::new();
    let mut ids = Vec::with_capacity(vocabulary.tokens.len());
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if let Some(other) = seen.insert(*token, id) {
            return Err(keys.error(format!("tokens {other} and {id} are both {token:?}")));
        }
        ids.push(((*token).to_owned(), id as u32));
    }
    Ok(ids)
}

/// Returns the merges, best first.
fn merges(keys: &GgufKeys<'_>) -> Result<Vec<(String, String)>, Error> {
    let Some(merges) = keys.strings("tokenizer.ggml.merges")? else {
        return Err(keys.error("its tokenizer has no merges (metadata tokenizer.ggml.merges)"));
    };
    let pairs: Option<Vec<(String, String)>> = merges
        .iter()
        // No piece contains a space: every alphabet writes it as another character.
        .map(|merge| merge.split_once(' '))
        .map(|pair| pair.map(|(left, right)| (left.to_owned(), right.to_owned())))
        .collect();
    pairs.ok_or_else(|| keys.error("its tokenizer's merges are not pairs"))
}

/// Builds the tokenizer in the file.
pub(crate) fn tokenizer(keys: &GgufKeys<'_>) -> Result<Tokenizer, Error> {
    // The tokenizers library panics on some damaged files.
    guard::catch_panic(|| build(keys)).unwrap_or_else(|| Err(keys.error(BROKEN_TOKENIZER)))
}

fn build(keys: &GgufKeys<'_>) -> Result<Tokenizer, Error> {
    let Some(model) = keys.string("tokenizer.ggml.model")? else {
        return Err(keys.error("has no tokenizer (metadata tokenizer.ggml.model)"));
    };
    if NO_VOCABULARY.contains(&model) {
        return Err(keys.error(format!(
            "has no vocabulary (tokenizer.ggml.model is {model:?}), so text cannot be tokenized; commands that take token \
             ids still work (logits, bench, inspect)"
        )));
    }
    let build = match model {
        "gpt2" => byte_level::build,
        "gemma4" => character_level::build,
        "llama" => sentence_piece::build,
        other => {
            let kind = match other {
                "bert" => " (WordPiece)",
                "t5" => " (Unigram)",
                _ => "",
            };
            return Err(keys.error(format!(
                "tokenizer {other:?}{kind} is not supported (supported: gpt2, llama, gemma4)"
            )));
        }
    };
    let vocabulary = GgufVocabulary::read(keys)?;
    let (mut inner, defaults) = build(keys, &vocabulary)?;
    let broken = |error: &dyn std::fmt::Display| keys.error(format!("broken tokenizer: {error}"));
    inner
        .add_tokens(added_tokens(&vocabulary))
        .map_err(|error| broken(&error))?;
    let special = |key: &str, wanted: bool| -> Result<Option<(String, u32)>, Error> {
        let id = keys.id(key)?.filter(|_| wanted);
        Ok(id.and_then(|id| Some((vocabulary.token(id)?.to_owned(), id))))
    };
    let flag = |key: &str, default: bool| Ok(keys.flag(key)?.unwrap_or(default));
    let bos = special(
        "tokenizer.ggml.bos_token_id",
        flag("tokenizer.ggml.add_bos_token", defaults.bos)?,
    )?;
    let eos = special(
        "tokenizer.ggml.eos_token_id",
        flag("tokenizer.ggml.add_eos_token", defaults.eos)?,
    )?;
    let around = bos_eos_processor(bos, eos).map_err(|error| broken(&error))?;
    inner.with_post_processor(Some(around));
    let bos_id = keys.id("tokenizer.ggml.bos_token_id")?;
    Tokenizer::new(inner, bos_id, keys.eos_ids()?)
}

/// Returns the chat template in the metadata, if any.
pub(crate) fn chat_template(keys: &GgufKeys<'_>) -> Result<Option<ChatTemplate>, Error> {
    let mut templates = BTreeMap::new();
    for (name, key) in [
        ("default", "tokenizer.chat_template"),
        ("tool_use", "tokenizer.chat_template.tool_use"),
    ] {
        if let Some(source) = keys.string(key)? {
            templates.insert(name.to_owned(), source.to_owned());
        }
    }
    if templates.is_empty() {
        return Ok(None);
    }
    Ok(Some(ChatTemplate::named(templates, special_tokens(keys)?)))
}

/// Returns the special tokens that templates see.
pub(crate) fn special_tokens(keys: &GgufKeys<'_>) -> Result<BTreeMap<String, String>, Error> {
    let mut tokens = BTreeMap::new();
    if keys.array_length("tokenizer.ggml.tokens")?.is_none() {
        return Ok(tokens);
    }
    let vocabulary = GgufVocabulary::read(keys)?;
    for (role, key) in [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("unk_token", "unknown"),
        ("pad_token", "padding"),
    ] {
        let id = keys.id(&format!("tokenizer.ggml.{key}_token_id"))?;
        if let Some(token) = id.and_then(|id| vocabulary.token(id)) {
            tokens.insert(role.to_owned(), token.to_owned());
        }
    }
    Ok(tokens)
}

/// Returns the post-processor that adds BOS and EOS around a text.
fn bos_eos_processor(bos: Option<(String, u32)>, eos: Option<(String, u32)>) -> Result<TemplateProcessing, String> {
    let mut single = String::new();
    if let Some((token, _)) = &bos {
        single.push_str(&format!("{token}:0 "));
    }
    single.push_str("$A:0");
    if let Some((token, _)) = &eos {
        single.push_str(&format!(" {token}:0"));
    }
    let tokens: Vec<(String, u32)> = bos.into_iter().chain(eos).collect();
    TemplateProcessing::builder()
        .try_single(single.as_str())?
        .special_tokens(tokens)
        .build()
        .map_err(|error| error.to_string())
}
