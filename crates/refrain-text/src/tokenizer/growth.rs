//! How much a text can grow in a tokenizer.
//!
//! A tokenizer's file says by which steps texts are rewritten, one after the other. Forty steps that each double a
//! text make terabytes of a letter, so what the steps can do at most is worked out before they do it.

use serde::Deserialize;
use serde_json::Value;

/// Growth that is left to those who give the text: that of published tokenizers is below it.
const USUAL: u64 = 36;

/// The longest that a text may become where the growth is not usual, and the longest list of ids that may be added to
/// one.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that a byte may become on the way back from ids to text. Those of published tokenizers become one.
const MAX_DECODED: u64 = 128;

/// Bytes that a byte may become by normalisation to compatible forms (U+FDFA has 3, and becomes 33).
const COMPATIBLE: u64 = 11;
/// Bytes that a byte may become by normalisation to composed or decomposed forms.
const CANONICAL: u64 = 3;
/// Bytes that a byte may become where each is written as a character of its own, or in lower case.
const TWICE: u64 = 2;

/// What a tokenizer makes of each byte of a text at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    per_byte: u64,
}

impl Growth {
    /// By the settings of a tokenizer.
    ///
    /// # Errors
    /// What is wrong with them, if no text could be taken through them.
    pub fn of(settings: &GrowthSettings) -> Result<Self, String> {
        let added = added_ids(&settings.post_processor);
        if added > MAX_BYTES as u64 {
            return Err(format!("its post-processor adds {added} tokens to each text"));
        }
        let decoded = per_byte(&settings.decoder);
        if decoded > MAX_DECODED {
            return Err(format!("its decoder makes texts up to {decoded} times as long"));
        }
        let per_byte = per_byte(&settings.normalizer).saturating_mul(per_byte(&settings.pre_tokenizer));
        let growth = Growth {
            per_byte: per_byte.saturating_mul(repeats(&settings.post_processor)),
        };
        if growth.per_byte > MAX_BYTES as u64 / 1024 {
            Err(format!(
                "its normalizer and pre-tokenizer make texts up to {} times as long",
                growth.per_byte
            ))
        } else {
            Ok(growth)
        }
    }

    /// Whether a text of this many bytes can be taken in.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, bytes: usize) -> Result<(), String> {
        let grown = (bytes as u64).saturating_mul(self.per_byte);
        if self.per_byte > USUAL && grown > MAX_BYTES as u64 {
            Err(format!(
                "a text of {bytes} bytes is too long: with this tokenizer it could grow {} times, to more than {} MiB",
                self.per_byte,
                MAX_BYTES >> 20
            ))
        } else {
            Ok(())
        }
    }
}

/// The settings of a tokenizer's parts, as `tokenizer.json` has them.
#[derive(Debug, Default, Deserialize)]
pub(super) struct GrowthSettings {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

impl GrowthSettings {
    /// Those of a tokenizer that is there already.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> serde_json::Result<Self> {
        Ok(GrowthSettings {
            normalizer: serde_json::to_value(tokenizer.get_normalizer())?,
            pre_tokenizer: serde_json::to_value(tokenizer.get_pre_tokenizer())?,
            post_processor: serde_json::to_value(tokenizer.get_post_processor())?,
            decoder: serde_json::to_value(tokenizer.get_decoder())?,
        })
    }
}

/// Bytes that a byte becomes at most by a normalizer, pre-tokenizer or decoder.
fn per_byte(step: &Value) -> u64 {
    let text = |key: &str| {
        step.get(key)
            .and_then(Value::as_str)
            .map_or(0, |text| text.len() as u64)
    };
    let steps = ["normalizers", "pretokenizers", "decoders"].map(|key| step.get(key).and_then(Value::as_array));
    let inner = steps
        .into_iter()
        .flatten()
        .flatten()
        .fold(1u64, |product, step| product.saturating_mul(per_byte(step)));
    // Old files have no types: the fields tell.
    let replaced = match step.pointer("/pattern/String").and_then(Value::as_str) {
        Some(pattern) if !pattern.is_empty() => text("content").div_ceil(pattern.len() as u64).max(1),
        // A pattern may match nothing, before each byte.
        _ => text("content") + 1,
    };
    // Once for each part between special tokens, of which each byte may be one.
    let prepended = 1 + text("prepend");
    let own = match step.get("type").and_then(Value::as_str) {
        _ if step.get("pattern").is_some() => replaced,
        _ if step.get("precompiled_charsmap").is_some() => longest_form(step),
        Some("NFKC" | "NFKD") => COMPATIBLE,
        Some("NFC" | "NFD") => CANONICAL,
        Some("BertNormalizer") => CANONICAL * TWICE * TWICE,
        None if step.get("strip_accents").is_some() => CANONICAL * TWICE * TWICE,
        Some("Metaspace") => 1 + text("replacement"),
        None if step.get("replacement").is_some() => 1 + text("replacement"),
        // Lower case, bytes as characters, decoders that put spaces or other text in a token's place.
        Some("Lowercase" | "ByteLevel" | "WordPiece" | "CTC" | "BPEDecoder") => TWICE,
        None if step.is_object() && inner == 1 => TWICE,
        _ => 1,
    };
    own.saturating_mul(prepended).saturating_mul(inner)
}

/// The longest that a map of characters to normal forms has, in bytes: it is a table and then the forms, with zero
/// bytes between them.
fn longest_form(step: &Value) -> u64 {
    let encoded = step.get("precompiled_charsmap").and_then(Value::as_str);
    // In base 64 four characters stand for three bytes; the first four bytes are the length of the table.
    let bytes = encoded.map(decode_base64).unwrap_or_default();
    let length = bytes
        .get(..4)
        .map_or(0, |head| u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
    let forms = bytes.get(4 + length as usize..).unwrap_or(&bytes);
    let longest = forms.split(|byte| *byte == 0).map(<[u8]>::len).max();
    longest.unwrap_or(0).max(1) as u64
}

fn decode_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for c in text.bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// How many times a post-processor takes the ids of a text.
fn repeats(processor: &Value) -> u64 {
    match processor.get("processors").and_then(Value::as_array) {
        Some(steps) => steps
            .iter()
            .fold(1u64, |product, step| product.saturating_mul(repeats(step))),
        None => {
            let pieces = processor.get("single").and_then(Value::as_array);
            let texts = pieces.map_or(1, |pieces| {
                pieces.iter().filter(|piece| piece.get("Sequence").is_some()).count()
            });
            texts.max(1) as u64
        }
    }
}

/// Ids that a post-processor adds to a text, however short.
fn added_ids(processor: &Value) -> u64 {
    if let Some(steps) = processor.get("processors").and_then(Value::as_array) {
        return steps.iter().fold(0u64, |added, step| {
            added.saturating_mul(repeats(step)).saturating_add(added_ids(step))
        });
    }
    let pieces = processor.get("single").and_then(Value::as_array);
    let ids = |piece: &Value| {
        let name = piece.pointer("/SpecialToken/id")?.as_str()?;
        let ids = processor.get("special_tokens")?.get(name)?.get("ids")?.as_array()?;
        Some(ids.len() as u64)
    };
    pieces.map_or(0, |pieces| {
        pieces
            .iter()
            .filter_map(ids)
            .fold(0u64, |sum, ids| sum.saturating_add(ids))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn growth(settings: Value) -> Result<Growth, String> {
        Growth::of(&serde_json::from_value(settings).unwrap())
    }

    #[test]
    fn usual_tokenizers_take_any_text_and_unusual_ones_short_texts() {
        let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let llama = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]});
        growth(json!({"normalizer": llama})).unwrap().check(1 << 40).unwrap();
        let composed = json!({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel"}});
        growth(composed).unwrap().check(1 << 40).unwrap();
        let forms = json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, space, space]}});
        let forms = growth(forms).unwrap();
        forms.check(100_000).unwrap();
        let error = forms.check(10_000_000).unwrap_err();
        assert!(error.contains("grow 99 times"), "{error}");
    }

    #[test]
    fn the_longest_form_is_read_from_the_map() {
        // A table of four bytes, then forms of one and three bytes.
        let map = json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAECAwRhAGFiYwA="});
        assert_eq!(per_byte(&map), 3);
    }

    #[test]
    fn what_grows_without_bound_is_refused() {
        let double = json!({"pattern": {"String": "a"}, "content": "aa"});
        let often = |step: &Value| vec![step.clone(); 40];
        let hostile = [
            json!({"normalizer": {"type": "Sequence", "normalizers": often(&double)}}),
            json!({"normalizer": {"normalizers": [{"normalizers": often(&double)}]}}),
            json!({"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "y".repeat(1 << 17)}}),
            json!({"normalizer": {"type": "Prepend", "prepend": "y".repeat(1 << 17)}}),
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": often(&json!({"type": "ByteLevel"}))}}),
            json!({"decoder": {"type": "Sequence", "decoders": often(&double)}}),
            json!({"post_processor": {"type": "Sequence", "processors": often(&json!({
                "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}]
            }))}}),
            json!({"post_processor": {"single": vec![json!({"SpecialToken": {"id": "x"}}); 10_000],
                "special_tokens": {"x": {"ids": vec![0; 10_000]}}}}),
        ];
        for settings in hostile {
            assert!(growth(settings.clone()).is_err(), "{:.200}", settings.to_string());
        }
    }
}
