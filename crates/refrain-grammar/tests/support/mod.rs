//! A tokenizer of single bytes, and walks through what a constraint allows.
#![allow(dead_code, reason = "each test uses its own part")]

use refrain_engine::TokenConstraint;
use refrain_grammar::{Grammar, GrammarCompiler, GrammarConstraint};
use refrain_text::dialects::{CallForm, Dialect};
use refrain_text::{Tokenizer, TokenizerFiles};
use serde_json::{Map, Value, json};

/// Number of tokens before the special ones: one for each byte.
pub const BYTES: u32 = 256;

/// Returns a tokenizer with a token for each byte, then `special`, then an end token.
pub fn tokenizer(special: &[String]) -> Tokenizer {
    // The byte-level alphabet of GPT-2: bytes without a visible letter get letters from U+0100 on.
    let mut shifted = (0x100..).filter_map(char::from_u32);
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => shifted.next().unwrap(),
    };
    let letters: Vec<char> = (0..=255).map(letter).collect();
    let vocabulary: Map<String, Value> = letters
        .iter()
        .enumerate()
        .map(|(id, letter)| (letter.to_string(), json!(id)))
        .collect();
    let added: Vec<Value> = special
        .iter()
        .map(String::as_str)
        .chain(["<|the-end|>"])
        .zip(BYTES..)
        .map(|(content, id)| {
            json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false,
                "lstrip": false, "rstrip": false})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let file = json!({"version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": byte_level,
        "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}});
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tokenizer.json"), file.to_string()).unwrap();
    let tokenizer = TokenizerFiles::open(directory.path()).unwrap().tokenizer().unwrap();
    tokenizer.with_eos_ids(&[BYTES + special.len() as u32])
}

pub fn compiler() -> GrammarCompiler {
    GrammarCompiler::new(&tokenizer(&[])).unwrap()
}

/// The allowed tokens of `count`.
pub fn allowed(constraint: &mut GrammarConstraint, count: u32) -> Result<Vec<u32>, String> {
    let mut bits = vec![0u32; count.div_ceil(32) as usize];
    constraint.fill_mask(&mut bits)?;
    Ok((0..count)
        .filter(|id| bits[*id as usize / 32] >> (id % 32) & 1 == 1)
        .collect())
}

/// Whether a grammar admits a whole text.
pub fn admits(compiler: &GrammarCompiler, grammar: &Grammar, text: &str) -> bool {
    let mut constraint = compiler
        .constraint(grammar, None)
        .unwrap_or_else(|why| panic!("{grammar:?}: {why}"));
    for byte in text.bytes() {
        if !allowed(&mut constraint, BYTES + 1).unwrap().contains(&u32::from(byte)) {
            return false;
        }
        if constraint.accept(u32::from(byte)).unwrap() {
            // Nothing may follow.
            return text.ends_with(char::from(byte));
        }
    }
    allowed(&mut constraint, BYTES + 1).unwrap().contains(&BYTES)
}

/// Numbers that are as good as random, and the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count.max(1)
    }
}

/// Takes up to `steps` random tokens. Returns the text, or the error that ended it.
pub fn walk(constraint: &mut GrammarConstraint, steps: usize, random: &mut Random) -> Result<String, String> {
    let mut text = vec![];
    for _ in 0..steps {
        let tokens = allowed(constraint, BYTES + 1)?;
        let Some(token) = tokens
            .get(random.below(tokens.len()))
            .copied()
            .filter(|token| *token < BYTES)
        else {
            break;
        };
        text.push(token as u8);
        if constraint.accept(token)? {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The name of a dialect's notation.
pub fn name(dialect: &Dialect) -> &'static str {
    let format = dialect.messages.map(|format| format.name);
    dialect
        .calls
        .map(|notation| notation.name)
        .or(format)
        .expect("each has calls or messages")
}

/// The marks of a dialect that look like special tokens.
pub fn special_tokens(dialect: &Dialect) -> Vec<String> {
    let mut found = vec![];
    for mark in dialect.marks() {
        for piece in mark.split_inclusive('>') {
            let start = piece.find("<|").or(piece.find("<｜"));
            let token = start.map(|start| &piece[start..]);
            found.extend(
                token
                    .filter(|token| token.ends_with("|>") || token.ends_with("｜>"))
                    .map(str::to_owned),
            );
        }
        if mark.starts_with('[') && mark.ends_with(']') && !mark.contains("[>") {
            found.push(mark.to_owned());
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The tokens of a text: special ones, and bytes.
pub fn tokens(mut text: &str, special: &[String]) -> Vec<u32> {
    let mut tokens = vec![];
    while let Some(letter) = text.chars().next() {
        let found = (BYTES..)
            .zip(special)
            .filter(|(_, token)| text.starts_with(token.as_str()));
        if let Some((id, token)) = found.max_by_key(|(_, token)| token.len()) {
            tokens.push(id);
            text = &text[token.len()..];
        } else {
            let (bytes, rest) = text.split_at(letter.len_utf8());
            tokens.extend(bytes.bytes().map(u32::from));
            text = rest;
        }
    }
    tokens
}

/// The texts that end free text in a dialect: arguments between marks, and reasoning.
pub fn ends_of_text(dialect: &Dialect) -> Vec<String> {
    let mut ends: Vec<String> = match dialect.calls.map(|notation| &notation.form) {
        Some(CallForm::Tagged(_, tags)) => {
            vec![format!("{}{}", if tags.on_lines { "\n" } else { "" }, tags.value_end)]
        }
        Some(CallForm::Elements(_, tags)) => ["city", "unit", "any"]
            .map(|key| format!("{}</{key}>", tags.prefix))
            .into(),
        Some(CallForm::Braces) => vec!["<|\"|>".to_owned()],
        _ => vec![],
    };
    ends.extend(dialect.messages.map(|format| format.ends[0].to_owned()));
    ends
}
