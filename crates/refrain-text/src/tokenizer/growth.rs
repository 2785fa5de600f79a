//! Bounds how much a text can grow in a tokenizer.
//!
//! A tokenizer's file lists rewriting steps that run one after the other. Forty steps that each double a text turn
//! one letter into terabytes, so the maximal growth is computed before any step runs.

use serde::Deserialize;
use serde_json::Value;

/// Growth factor up to which texts of any length are accepted. Published tokenizers are below it.
const MAX_UNCHECKED_GROWTH: u64 = 36;

/// Limit in bytes of a text after growth beyond [`MAX_UNCHECKED_GROWTH`], and of the list of ids added to a text.
const MAX_BYTES: usize = 64 << 20;

/// Limit of the growth factor when ids are decoded to text. That of published tokenizers is 1.
const MAX_DECODED_GROWTH: u64 = 128;

/// Growth factor of normalisation to compatible forms (U+FDFA has 3 bytes and becomes 33).
const COMPATIBLE_GROWTH: u64 = 11;
/// Growth factor of normalisation to composed or decomposed forms.
const CANONICAL_GROWTH: u64 = 3;
/// Growth factor where each byte becomes a character, or text becomes lower case.
const DOUBLING: u64 = 2;

/// The maximal growth of a text in a tokenizer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    per_byte: u64,
}

impl Growth {
    /// Computes the growth from a tokenizer's settings.
    ///
    /// # Errors
    /// What is wrong with the settings, if no text could be encoded.
    pub fn of(settings: &GrowthSettings) -> Result<Self, String> {
        let added = added_ids(&settings.post_processor);
        if added > MAX_BYTES as u64 {
            return Err(format!("its post-processor adds {added} tokens to each text"));
        }
        let decoded = per_byte(&settings.decoder);
        if decoded > MAX_DECODED_GROWTH {
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

    /// Checks whether a text of this many bytes can be encoded.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, bytes: usize) -> Result<(), String> {
        let grown = (bytes as u64).saturating_mul(self.per_byte);
        if self.per_byte > MAX_UNCHECKED_GROWTH && grown > MAX_BYTES as u64 {
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

/// The settings of a tokenizer's parts, as in `tokenizer.json`.
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
    /// Reads the settings of a built tokenizer.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> serde_json::Result<Self> {
        Ok(GrowthSettings {
            normalizer: serde_json::to_value(tokenizer.get_normalizer())?,
            pre_tokenizer: serde_json::to_value(tokenizer.get_pre_tokenizer())?,
            post_processor: serde_json::to_value(tokenizer.get_post_processor())?,
            decoder: serde_json::to_value(tokenizer.get_decoder())?,
        })
    }
}

/// Returns the growth factor of a normalizer, pre-tokenizer or decoder.
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
    // Old files have no types; the fields tell.
    let replaced = match step.pointer("/pattern/String").and_then(Value::as_str) {
        Some(pattern) if !pattern.is_empty() => text("content").div_ceil(pattern.len() as u64).max(1),
        // A pattern may match the empty string, before each byte.
        _ => text("content") + 1,
    };
    // Once per part between special tokens, and each byte may be a special token.
    let prepended = 1 + text("prepend");
    let own = match step.get("type").and_then(Value::as_str) {
        _ if step.get("pattern").is_some() => replaced,
        _ if step.get("precompiled_charsmap").is_some() => longest_form(step),
        Some("NFKC" | "NFKD") => COMPATIBLE_GROWTH,
        Some("NFC" | "NFD") => CANONICAL_GROWTH,
        Some("BertNormalizer") => CANONICAL_GROWTH * DOUBLING * DOUBLING,
        None if step.get("strip_accents").is_some() => CANONICAL_GROWTH * DOUBLING * DOUBLING,
        Some("Metaspace") => 1 + text("replacement"),
        None if step.get("replacement").is_some() => 1 + text("replacement"),
        // Lower case, bytes as characters, decoders that replace tokens by spaces or other text.
        Some("Lowercase" | "ByteLevel" | "WordPiece" | "CTC" | "BPEDecoder") => DOUBLING,
        None if step.is_object() && inner == 1 => DOUBLING,
        _ => 1,
    };
    own.saturating_mul(prepended).saturating_mul(inner)
}

/// Returns the length in bytes of the longest form in a map of characters to normal forms. The map is a table
/// followed by the forms, separated by zero bytes.
fn longest_form(step: &Value) -> u64 {
    let encoded = step.get("precompiled_charsmap").and_then(Value::as_str);
    // In base64, four characters encode three bytes; the first four bytes are the table's length.
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

/// Returns how often a post-processor repeats the ids of a text.
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

/// Returns the number of ids that a post-processor adds to any text.
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
    fn limits_text_length_only_for_tokenizers_with_large_growth() {
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
    fn reads_the_longest_form_from_the_map() {
        // A table of four bytes, then forms of one and three bytes.
        let map = json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAECAwRhAGFiYwA="});
        assert_eq!(per_byte(&map), 3);
    }

    #[test]
    fn refuses_unbounded_growth() {
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
