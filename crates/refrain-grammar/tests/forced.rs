//! Forced tokens: the ones that a grammar's masks would allow alone, one after the other.

mod support;

use refrain_engine::TokenConstraint;
use refrain_grammar::{Grammar, GrammarCompiler, GrammarConstraint};
use refrain_text::{Tokenizer, TokenizerFiles};
use serde_json::json;

fn demo() -> Tokenizer {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/model");
    let opened = TokenizerFiles::open(directory.as_ref()).and_then(|files| files.tokenizer());
    opened.expect("the demo model's tokenizer")
}

fn record(tokenizer: &Tokenizer) -> GrammarConstraint {
    let schema = json!({"type": "object", "additionalProperties": false,
    "required": ["the_first_measured_value", "größe", "the_last_of_all_the_values"],
    "properties": {
        "the_first_measured_value": {"type": "integer", "minimum": 0, "maximum": 99},
        "größe": {"enum": ["klein", "mittelgroß", "sehr groß"]},
        "the_last_of_all_the_values": {"type": "string", "maxLength": 9},
    }});
    let compiler = GrammarCompiler::new(tokenizer).expect("made");
    compiler
        .constraint(&Grammar::JsonSchema(schema), None)
        .expect("compiles")
}

/// Returns the tokens that a constraint allows next.
fn allowed(constraint: &mut GrammarConstraint, count: usize) -> Vec<u32> {
    let mut bits = vec![0u32; count.div_ceil(32)];
    constraint.fill_mask(&mut bits).expect("goes on");
    let is_allowed = |id: &u32| bits[*id as usize / 32] >> (id % 32) & 1 == 1;
    (0..32 * bits.len() as u32).filter(is_allowed).collect()
}

#[test]
fn masks_allow_nothing_but_forced_tokens_and_any_walk_is_valid() {
    for tokenizer in [demo(), support::tokenizer(&[])] {
        let first = record(&tokenizer);
        let count = tokenizer.vocab_size();
        let mut jumped = 0;
        for seed in 1..30 {
            let mut random = support::Random(seed);
            let mut constraint = first.fork();
            let mut tokens = vec![];
            let mut is_complete = false;
            while !is_complete {
                assert!(tokens.len() < 500, "{:?}", tokenizer.decode(&tokens, false));
                let forced = constraint.forced();
                for &token in &forced {
                    assert_eq!(allowed(&mut constraint, count), [token], "after {tokens:?}");
                    tokens.push(token);
                    is_complete = constraint.accept(token).expect("forced");
                }
                jumped += forced.len();
                if forced.is_empty() {
                    let choices = allowed(&mut constraint, count);
                    let token = choices[random.below(choices.len())];
                    if tokenizer.eos_ids().contains(&token) {
                        break;
                    }
                    tokens.push(token);
                    is_complete = constraint.accept(token).expect("allowed");
                }
            }
            let text = tokenizer.decode(&tokens, false).expect("decodes");
            let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
            assert!(
                value["größe"].is_string() && value["the_first_measured_value"].is_u64(),
                "{text}"
            );
        }
        assert!(jumped > 29 * 8, "{jumped} tokens were forced");
    }
}
