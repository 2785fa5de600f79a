//! Writes a tokenizer as GGUF metadata.

use std::collections::{BTreeMap, HashMap};

use refrain_formats::{EndTokens, Error, MetadataEntries, MetadataValue};
use refrain_models::Checkpoint;
use refrain_models::config::write_gguf::no_tokenizer;
use refrain_text::{ChatTemplate, Tokenizer, pre_tokenizer_name};
use serde_json::Value as Json;

/// The split pattern of pre-tokenizers with GPT-2's built-in rule.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Returns the tokenizer's metadata: a GGUF file's own, or built from `tokenizer.json`.
pub(super) fn metadata(source: &Checkpoint, notes: &mut Vec<String>) -> Result<MetadataEntries, Error> {
    if let Some(raw) = source.files().tokenizer_metadata() {
        return Ok(raw
            .map(|(key, raw)| (key.to_owned(), MetadataValue::Raw(raw.to_owned())))
            .collect());
    }
    if !source.files().has_tokenizer() {
        notes.push("there is no tokenizer.json: the file will not contain a tokenizer".to_owned());
        return Ok(no_tokenizer(source.config()));
    }
    let tokenizer = source.tokenizer()?;
    let json = tokenizer.to_json()?;
    let model = &json["model"];
    let refuse = |what: &str| Error::Conversion(format!("{}: its tokenizer {what}", source.name()));
    if model["type"].as_str() != Some("BPE") {
        let kind = model["type"].as_str().unwrap_or("unknown");
        return Err(refuse(&format!("is a {kind} model; only BPE can be written to GGUF")));
    }
    let mut vocabulary = GgufTokens::read(&json, source.config().vocab_size).map_err(|what| refuse(&what))?;
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

/// The tokens by id, up to the model's last.
struct GgufTokens {
    tokens: Vec<String>,
    kinds: Vec<i32>,
}

impl GgufTokens {
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
                "gives {token:?} the id {last}, but the model has only {size} tokens"
            ));
        }
        let (mut tokens, mut kinds) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for id in 0..size {
            let (token, kind) = known.remove(&id).unwrap_or_else(|| (format!("[PAD{id}]"), UNUSED));
            tokens.push(token);
            kinds.push(kind);
        }
        Ok(GgufTokens { tokens, kinds })
    }
}

/// Returns the BPE merges, best first.
fn merges(json: &Json) -> impl Iterator<Item = (&str, &str)> {
    let listed = json["model"]["merges"].as_array().into_iter().flatten();
    listed.filter_map(|merge| match merge {
        Json::String(pair) => pair.split_once(' '),
        pair => Some((pair[0].as_str()?, pair[1].as_str()?)),
    })
}

/// Byte-level BPE: merges, and the name of the pre-tokenizer.
fn byte_level(json: &Json, notes: &mut Vec<String>) -> Result<MetadataEntries, String> {
    let patterns = patterns(&json["pre_tokenizer"])?;
    let whole_words = json["model"]["ignore_merges"].as_bool().unwrap_or(false);
    let patterns = Vec::from_iter(patterns.iter().map(String::as_str));
    let Some(name) = pre_tokenizer_name(&patterns, whole_words) else {
        return Err(format!("has a pre-tokenizer without a GGUF name: {patterns:?}"));
    };
    if json["normalizer"]["type"].as_str().is_some_and(|kind| kind != "NFC") {
        notes.push(format!(
            "GGUF cannot represent the tokenizer's normalizer {}: some texts may be tokenized differently",
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

/// Returns the split patterns of a pre-tokenizer, in order of application.
fn patterns(pre: &Json) -> Result<Vec<String>, String> {
    let unknown = || Err(format!("has a pre-tokenizer without a GGUF name: {pre}"));
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
                // Text between the matches is dropped, but these patterns match everything.
                (Some(pattern), Some("Isolated"), false) | (Some(pattern), Some("Removed"), true) => {
                    Ok(vec![pattern.to_owned()])
                }
                _ => unknown(),
            }
        }
        _ => unknown(),
    }
}

/// SentencePiece: scores instead of merges. Only their order matters, so the rank of the first merge that builds a
/// token replaces its original score.
fn sentence_piece(json: &Json, vocabulary: &mut GgufTokens) -> MetadataEntries {
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

/// Returns the special tokens with a role, and whether BOS and EOS are added.
fn special_tokens(source: &Checkpoint, tokenizer: &Tokenizer) -> Result<MetadataEntries, Error> {
    let roles = source.special_tokens()?;
    let id = |role: &str| roles.get(role).and_then(|token| tokenizer.id(token));
    let ends = tokenizer.eos_ids();
    let bos = id("bos_token").or(source.config().bos_ids.first().copied());
    let eos = id("eos_token").or(ends.first().copied());
    // Readers find most end tokens by name, so the two keys that are left are for the others.
    let control = ends.iter().filter_map(|id| Some((*id, tokenizer.token(*id)?)));
    let control: Vec<(u32, String)> = control.collect();
    let named = EndTokens::among(control.iter().map(|(id, name)| (*id, name.as_str()))).ids;
    let (others, named): (Vec<u32>, Vec<u32>) =
        (ends.iter().filter(|id| Some(**id) != eos)).partition(|id| !named.contains(*id));
    let mut rest = others.iter().chain(&named).copied();
    let (eot, eom) = (rest.next(), rest.next().filter(|id| others.contains(id)));
    let ids = [
        ("bos", bos),
        ("eos", eos),
        ("eot", eot),
        ("eom", eom),
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
