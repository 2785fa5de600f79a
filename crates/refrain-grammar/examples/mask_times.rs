//! Measures how long the masks of a JSON schema take, and accepting tokens: the mean, and the slowest of an answer.
//!
//! ```text
//! cargo run --release -p refrain-grammar --example mask_times -- TOKENIZER [FIELDS]
//! ```
//!
//! TOKENIZER is a directory with a `tokenizer.json`. The schema has FIELDS properties (50 unless given): texts, numbers,
//! choices, lists, objects and dates. The answer is one that a model might give.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use refrain_engine::TokenConstraint;
use refrain_grammar::{Grammar, GrammarCompiler, GrammarConstraint};
use refrain_text::{Tokenizer, TokenizerFiles};
use serde_json::{Map, Value, json};

const FIELDS: usize = 50;
/// Answers measured. Each begins with nothing but the compiled schema.
const REPETITIONS: usize = 9;
const USAGE: &str = "mask_times TOKENIZER [FIELDS]";

/// The schema of a property, and a value of it.
fn property(number: usize) -> (Value, Value) {
    match number % 8 {
        0 => (
            json!({"type": "string"}),
            json!(format!("A text with \"quotes\" and words: {number}")),
        ),
        1 => (
            json!({"type": "integer", "minimum": 0, "maximum": 100_000}),
            json!(number * 977),
        ),
        2 => (json!({"type": "number"}), json!(number as f64 * 3.25)),
        3 => (
            json!({"enum": ["small", "medium", "large", "extra large"]}),
            json!("extra large"),
        ),
        4 => (
            json!({"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 5}),
            json!(["red", "light blue", "grün"]),
        ),
        5 => (
            json!({"type": "object", "properties": {"x": {"type": "number"}, "name": {"type": "string"}},
                "required": ["x"], "additionalProperties": false}),
            json!({"x": 0.5, "name": "somewhere in the middle"}),
        ),
        6 => (json!({"type": "string", "format": "date"}), json!("2026-11-26")),
        _ => (json!({"type": ["boolean", "null"]}), json!(true)),
    }
}

fn schema_and_answer(fields: usize) -> (Value, String) {
    let (mut schemas, mut values) = (Map::new(), Map::new());
    for number in 0..fields {
        let (schema, value) = property(number);
        let name = format!("field_{number}_of_the_record");
        schemas.insert(name.clone(), schema);
        values.insert(name, value);
    }
    // Half of the properties are optional.
    let required: Vec<&String> = schemas.keys().step_by(2).collect();
    let schema = json!({"type": "object", "properties": schemas, "required": required, "additionalProperties": false});
    (schema, Value::Object(values).to_string())
}

/// The times of an answer's masks and of taking its tokens.
fn answer(
    constraint: &mut GrammarConstraint,
    tokens: &[u32],
    words: usize,
) -> Result<Vec<(Duration, Duration)>, String> {
    let mut bits = vec![0u32; words];
    let mut times = vec![];
    for &token in tokens {
        bits.fill(0);
        let start = Instant::now();
        constraint.fill_mask(&mut bits)?;
        let masked = Instant::now();
        if bits[token as usize / 32] >> (token % 32) & 1 == 0 {
            return Err(format!("token {token} is refused"));
        }
        let is_complete = constraint.accept(token)?;
        times.push((masked - start, masked.elapsed()));
        if is_complete {
            break;
        }
    }
    Ok(times)
}

fn print(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let total: Duration = times.iter().sum();
    let (mean, last) = (micros(total) / times.len() as f64, times.len() - 1);
    println!(
        "{name}: mean {mean:.0} µs, half {:.0}, 99 % {:.0}, slowest {:.0} of {}",
        micros(times[last / 2]),
        micros(times[last * 99 / 100]),
        micros(times[last]),
        times.len()
    );
}

fn run(tokenizer: &Tokenizer, fields: usize) -> Result<(), String> {
    let (schema, text) = schema_and_answer(fields);
    let tokens = tokenizer.encode(&text, false).map_err(|why| why.to_string())?;
    let start = Instant::now();
    let compiler = GrammarCompiler::new(tokenizer).map_err(|why| why.to_string())?;
    println!("tokens of the vocabulary prepared in {:.2?}", start.elapsed());
    let start = Instant::now();
    let grammar = Grammar::JsonSchema(schema);
    let constraint = compiler.constraint(&grammar, None).map_err(|why| why.to_string())?;
    println!("schema of {fields} fields compiled in {:.2?}", start.elapsed());
    let words = tokenizer.vocab_size().div_ceil(32);
    // Only work takes as long each time: what interrupts it does not.
    let mut times = answer(&mut constraint.fork(), &tokens, words)?;
    for _ in 1..REPETITIONS {
        let again = answer(&mut constraint.fork(), &tokens, words)?;
        for (least, other) in times.iter_mut().zip(again) {
            *least = (least.0.min(other.0), least.1.min(other.1));
        }
    }
    print("masks", times.iter().map(|times| times.0).collect());
    print("accepted tokens", times.iter().map(|times| times.1).collect());
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let fields = arguments
        .next()
        .and_then(|fields| fields.parse().ok())
        .unwrap_or(FIELDS);
    let opened = TokenizerFiles::open(directory.as_ref()).and_then(|files| files.tokenizer());
    let ran = opened
        .map_err(|why| why.to_string())
        .and_then(|tokenizer| run(&tokenizer, fields));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
