//! Behaviour of transformers' tokenizer classes beyond their files. Since version 5, the class named in
//! `tokenizer_config.json` builds everything around the vocabulary itself.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::normalizers::replace::Replace;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};

use refrain_formats::JsonObject;

/// Returns the special tokens of a class whose role the configuration does not mention.
pub(super) fn default_roles(config: &JsonObject) -> &'static [(&'static str, &'static str)] {
    match class(config) {
        "LlamaTokenizer" => &[("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")],
        "GemmaTokenizer" => &[
            ("unk_token", "<unk>"),
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
        "Qwen2Tokenizer" => &[
            ("unk_token", "<|endoftext|>"),
            ("eos_token", "<|endoftext|>"),
            ("pad_token", "<|endoftext|>"),
        ],
        _ => &[],
    }
}

/// Applies what the class builds differently from `tokenizer.json`.
pub(super) fn apply(inner: &mut tokenizers::Tokenizer, config: &JsonObject) -> tokenizers::Result<()> {
    // Byte-level tokenizers of derived models name this class too; it would break them.
    let sentence_piece = match inner.get_model() {
        ModelWrapper::BPE(model) => model.byte_fallback,
        _ => false,
    };
    if class(config) != "LlamaTokenizer" || !sentence_piece {
        return Ok(());
    }
    let flag = |key: &str| config.get(key).and_then(serde_json::Value::as_bool);
    let prefix = flag("add_prefix_space").unwrap_or(true);
    let scheme = match (prefix, flag("legacy").unwrap_or(false)) {
        (false, _) => PrependScheme::Never,
        (true, true) => PrependScheme::Always,
        (true, false) => PrependScheme::First,
    };
    inner.with_normalizer(None::<NormalizerWrapper>)?;
    inner.with_pre_tokenizer(Some(Metaspace::new('▁', scheme, false)));
    let mut decoders: Vec<DecoderWrapper> = vec![
        Replace::new("▁", " ")?.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if prefix {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    inner.with_decoder(Some(Sequence::new(decoders)));
    Ok(())
}

fn class(config: &JsonObject) -> &str {
    let name = config.get("tokenizer_class").and_then(|name| name.as_str());
    name.unwrap_or_default().trim_end_matches("Fast")
}
