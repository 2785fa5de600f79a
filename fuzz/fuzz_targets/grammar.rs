//! A grammar: a letter for its kind, then its text. It compiles or is refused, and 50 tokens that it allows are taken.

#![no_main]

use std::sync::LazyLock;

use refrain_engine::TokenConstraint;
use refrain_grammar::{AnswerForm, CallableFunction, Grammar, GrammarCompiler, SpecialTokens};
use refrain_text::dialects::Dialect;

/// Number of tokens to take.
const TOKENS: usize = 50;

static COMPILER: LazyLock<GrammarCompiler> =
    LazyLock::new(|| GrammarCompiler::new(&refrain_fuzz::byte_tokenizer()).expect("the tokenizer has tokens"));

fn grammar(kind: u8, text: String) -> Option<Grammar> {
    let json = || serde_json::from_str(&text).ok();
    Some(match kind {
        b's' => Grammar::JsonSchema(json()?),
        b'r' => Grammar::Regex(text),
        b'c' => Grammar::Choice(text.split('\n').map(str::to_owned).collect()),
        b'l' => Grammar::Lark(text),
        // The parameters of a function, in one of the dialects.
        _ => {
            let dialects = Dialect::all();
            let parameters = json()?;
            let functions = [CallableFunction {
                name: "f",
                parameters: Some(&parameters),
                strict: true,
            }];
            let form = AnswerForm {
                dialect: &dialects[kind as usize % dialects.len()],
                functions: &functions,
                several: true,
                text: None,
            };
            form.grammar(&SpecialTokens::default()).ok()?
        }
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((kind, text)) = input.split_first() else {
        return;
    };
    let Some(grammar) = grammar(*kind, String::from_utf8_lossy(text).into_owned()) else {
        return;
    };
    let Ok(mut constraint) = COMPILER.constraint(&grammar, None) else {
        return;
    };
    for step in 0..TOKENS {
        let mut bits = [0u32; 16];
        if constraint.fill_mask(&mut bits).is_err() {
            return;
        }
        let allowed: Vec<u32> = (0..256)
            .filter(|id| bits[*id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        // As good as random, and the same for the same input.
        let number = text.len() * 31 + step * 7;
        let Some(token) = allowed.get(number % allowed.len().max(1)) else {
            return;
        };
        if constraint.accept(*token).unwrap_or(true) {
            return;
        }
    }
});
