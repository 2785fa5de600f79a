//! A tokenizer as GGUF metadata.

use std::collections::{BTreeMap, HashMap};

use refrain_formats::Error;
use refrain_formats::{MetadataEntries, MetadataValue};
use refrain_models::Checkpoint;
use refrain_models::config::written_gguf::no_tokenizer;
use refrain_text::{ChatTemplate, Tokenizer, pre_tokenizer_name};
use serde_json::Value as Json;

/// What cuts words where GPT-2's own rule is built into a pre-tokenizer.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

// Numbers of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The tokenizer's metadata: a GGUF file's as they are, others made of what `tokenizer.json` says.
pub(super) fn metadata(source: &Checkpoint, notes: &mut Vec<String>) -> Result<MetadataEntries, Error> {
    if let Some(raw) = source.files().tokenizer_metadata() {
        return Ok(raw
            .map(|(key, raw)| (key.to_owned(), MetadataValue::Raw(raw.to_owned())))
            .collect());
    }
    if !source.files().has_tokenizer() {
        notes.push("there is no tokenizer.json: the file will have no tokenizer".to_owned());
        return Ok(no_tokenizer(source.config()));
    }
    let tokenizer = source.tokenizer()?;
    let json = tokenizer.to_json()?;
    let model = &json["model"];
    let refuse = |what: &str| Error::Conversion(format!("{}: its tokenizer {what}", source.name()));
    if model["type"].as_str() != Some("BPE") {
        let kind = model["type"].as_str().unwrap_or("unknown");
        return Err(refuse(&format!(
            "is of the kind {kind}, which GGUF files here do not hold (only BPE)"
        )));
    }
    let mut vocabulary = WrittenVocabulary::read(&json, source.config().vocab_size).map_err(|what| refuse(&what))?;
    let mut metadata = match model["byte_fallback"].as_bool() {
        Some(true) => sentence_piece(&json, &mut vocabulary),
        _ => byte_level(&json, notes).map_err(|what| refuse(&what))?,
    };
    metadata.push(text_list("tokens", vocabulary.tokens));
    metadata.push((
        "tokenizer.ggml.token_type".to_owned(),
        MetadataValue::I32s(vocabulary.kinds),
    ));
    metadata.extend(special_tokens(source, &tokenizer)?);
    if let Some(template) = source.chat_template()? {
        metadata.extend(chat_templates(&template));
    }
    Ok(metadata)
}

/// Tokens by their ids, up to the model's last.
struct WrittenVocabulary {
    tokens: Vec<String>,
    kinds: Vec<i32>,
}

impl WrittenVocabulary {
    fn read(json: &Json, size: usize) -> Result<Self, String> {
        let mut known: BTreeMap<usize, (String, i32)> = BTreeMap::new();
        let id = |value: &Json| value.as_u64().map_or(usize::MAX, |id| id as usize);
        let unknown = json["model"]["unk_token"].as_str();
        for (token, number) in json["model"]["vocab"].as_object().into_iter().flatten() {
            let kind = if unknown == Some(token) { UNKNOWN } else { NORMAL };
            known.insert(id(number), (token.clone(), kind));
        }
        for added in json["added_tokens"].as_array().into_iter().flatten() {
            let content = added["content"].as_str().unwrap_or_default();
            let kind = match added["special"].as_bool() {
                _ if unknown == Some(content) => UNKNOWN,
                Some(true) => CONTROL,
                _ => USER_DEFINED,
            };
            known.insert(id(&added["id"]), (content.to_owned(), kind));
        }
        if let Some((last, (token, _))) = known.last_key_value()
            && *last >= size
        {
            return Err(format!(
                "gives {token:?} the id {last}, but the model has rows for {size} tokens only"
            ));
        }
        let (mut tokens, mut kinds) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for id in 0..size {
            let (token, kind) = known.remove(&id).unwrap_or_else(|| (format!("[PAD{id}]"), UNUSED));
            tokens.push(token);
            kinds.push(kind);
        }
        Ok(WrittenVocabulary { tokens, kinds })
    }
}

/// The pairs that BPE merges, best first.
fn merges(json: &Json) -> impl Iterator<Item = (&str, &str)> {
    let listed = json["model"]["merges"].as_array().into_iter().flatten();
    listed.filter_map(|merge| match merge {
        Json::String(pair) => pair.split_once(' '),
        pair => Some((pair[0].as_str()?, pair[1].as_str()?)),
    })
}

/// Byte-level BPE: merges, and the name of the rule that cuts text into words.
fn byte_level(json: &Json, notes: &mut Vec<String>) -> Result<MetadataEntries, String> {
    let patterns = patterns(&json["pre_tokenizer"])?;
    let whole_words = json["model"]["ignore_merges"].as_bool().unwrap_or(false);
    let patterns = Vec::from_iter(patterns.iter().map(String::as_str));
    let Some(name) = pre_tokenizer_name(&patterns, whole_words) else {
        return Err(format!(
            "cuts text into words by {patterns:?}, which no GGUF name stands for"
        ));
    };
    if json["normalizer"]["type"].as_str().is_some_and(|kind| kind != "NFC") {
        notes.push(format!(
            "GGUF files have no word for the tokenizer's normaliser {}: some texts may become other tokens",
            json["normalizer"]["type"]
        ));
    }
    let merges = merges(json).map(|(left, right)| format!("{left} {right}")).collect();
    Ok(vec![
        (
            "tokenizer.ggml.model".to_owned(),
            MetadataValue::Text("gpt2".to_owned()),
        ),
        ("tokenizer.ggml.pre".to_owned(), MetadataValue::Text(name.to_owned())),
        text_list("merges", merges),
    ])
}

/// What a pre-tokenizer cuts by, one pattern after the other.
fn patterns(pre: &Json) -> Result<Vec<String>, String> {
    let unknown = || {
        Err(format!(
            "cuts text into words in a way that GGUF has no name for ({pre})"
        ))
    };
    match pre["type"].as_str() {
        Some("Sequence") => {
            let steps = pre["pretokenizers"].as_array().into_iter().flatten();
            Ok(steps.map(patterns).collect::<Result<Vec<_>, _>>()?.concat())
        }
        Some("ByteLevel") if pre["add_prefix_space"].as_bool() == Some(true) => unknown(),
        Some("ByteLevel") if pre["use_regex"].as_bool() == Some(false) => Ok(Vec::new()),
        Some("ByteLevel") => Ok(vec![GPT2.to_owned()]),
        Some("Digits") if pre["individual_digits"].as_bool() == Some(true) => Ok(vec![r"\p{N}".to_owned()]),
        Some("Split") => {
            let invert = pre["invert"].as_bool() == Some(true);
            match (pre["pattern"]["Regex"].as_str(), pre["behavior"].as_str(), invert) {
                // What lies between the matches is dropped, but the patterns leave nothing between.
                (Some(pattern), Some("Isolated"), false) | (Some(pattern), Some("Removed"), true) => {
                    Ok(vec![pattern.to_owned()])
                }
                _ => unknown(),
            }
        }
        _ => unknown(),
    }
}

/// SentencePiece: scores instead of merges. Only their order counts, so that the rank of the first merge that
/// makes a token is as good as the score that it was made from.
fn sentence_piece(json: &Json, vocabulary: &mut WrittenVocabulary) -> MetadataEntries {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    let mut count = 0;
    for (rank, (left, right)) in merges(json).enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
        count = rank + 1;
    }
    let mut scores = Vec::with_capacity(vocabulary.tokens.len());
    for (token, kind) in vocabulary.tokens.iter().zip(&mut vocabulary.kinds) {
        let byte = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        if byte.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok()) {
            *kind = BYTE;
        }
        scores.push(match *kind {
            NORMAL => -(*ranks.get(token).unwrap_or(&count) as f32),
            _ => 0.0,
        });
    }
    let pre = &json["pre_tokenizer"];
    let prefix = json["normalizer"].to_string().contains("\"Prepend\"")
        || (pre["type"] == "Metaspace" && pre["prepend_scheme"] != "never");
    vec![
        (
            "tokenizer.ggml.model".to_owned(),
            MetadataValue::Text("llama".to_owned()),
        ),
        (
            "tokenizer.ggml.pre".to_owned(),
            MetadataValue::Text("default".to_owned()),
        ),
        (
            "tokenizer.ggml.add_space_prefix".to_owned(),
            MetadataValue::Bool(prefix),
        ),
        ("tokenizer.ggml.scores".to_owned(), MetadataValue::F32s(scores)),
    ]
}

/// The tokens with a role, and whether texts begin and end with them.
fn special_tokens(source: &Checkpoint, tokenizer: &Tokenizer) -> Result<MetadataEntries, Error> {
    let roles = source.special_tokens()?;
    let id = |role: &str| roles.get(role).and_then(|token| tokenizer.id(token));
    let ends = tokenizer.eos_ids();
    let bos = id("bos_token").or(source.config().bos_ids.first().copied());
    let eos = id("eos_token").or(ends.first().copied());
    // A second one that ends a text is, in practice, the end of a turn.
    let eot = ends.iter().copied().find(|end| Some(*end) != eos);
    let ids = [
        ("bos", bos),
        ("eos", eos),
        ("eot", eot),
        ("unknown", id("unk_token")),
        ("padding", id("pad_token")),
    ];
    let mut metadata = MetadataEntries::new();
    for (role, id) in ids {
        metadata.extend(id.map(|id| (format!("tokenizer.ggml.{role}_token_id"), MetadataValue::U32(id))));
    }
    let text = tokenizer.encode("a", true)?;
    let adds = [
        ("bos", bos.is_some() && text.first().copied() == bos),
        ("eos", eos.is_some() && text.last().copied() == eos),
    ];
    metadata.extend(adds.map(|(role, adds)| (format!("tokenizer.ggml.add_{role}_token"), MetadataValue::Bool(adds))));
    Ok(metadata)
}

fn chat_templates(template: &ChatTemplate) -> MetadataEntries {
    let named = template.sources().map(|(name, source)| {
        let key = match name {
            "default" => "tokenizer.chat_template".to_owned(),
            other => format!("tokenizer.chat_template.{other}"),
        };
        (key, MetadataValue::Text(source.to_owned()))
    });
    named.collect()
}

fn text_list(key: &str, texts: Vec<String>) -> (String, MetadataValue) {
    (format!("tokenizer.ggml.{key}"), MetadataValue::Texts(texts))
}
