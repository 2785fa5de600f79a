//! Any text in any dialect is read alike however it is cut. `fuzz/fuzz_targets/dialects.rs` tries more texts.

use proptest::prelude::*;
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions, Marks};
use serde_json::json;

/// What answers consist of beside the marks of their dialect.
const FRAGMENTS: [&str; 34] = [
    " ",
    "\n",
    "f",
    "g",
    "x",
    "a word ",
    "é",
    "{",
    "}",
    "\"",
    "[",
    "]",
    ":",
    ", ",
    "1",
    "-2.5e3",
    "true",
    "null",
    "\\",
    "\\\"",
    "{\"name\": \"f\", \"arguments\": {\"x\": 1}}",
    "{\"name\":\"g\",\"parameters\":{\"s\":\"</tool_call>\"}}",
    "[{\"name\": \"f\", \"arguments\": {}}]",
    "f(x=1, s='a')",
    "(",
    ")",
    "=",
    "functions.f:0",
    "<",
    ">",
    "|",
    "\u{ff5c}",
    "<think>",
    "</think>",
];

/// Each dialect, with reasoning.
fn dialects() -> Vec<Dialect> {
    let think = Marks {
        open: "<think>",
        close: "</think>",
    };
    let with_reasoning = |dialect: Dialect| Dialect {
        reasoning: dialect.messages.is_none().then_some(think),
        ..dialect
    };
    Dialect::all().into_iter().map(with_reasoning).collect()
}

/// Reads an answer in pieces of these numbers of characters, over and over, and joins what belongs together.
fn read(dialect: Dialect, has_tools: bool, is_open: bool, text: &str, lengths: &[usize]) -> Vec<AnswerPiece> {
    let schema = json!({"properties": {"x": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object"}}});
    let functions = if has_tools {
        Functions::new(["f", "g"].map(|name| (name.to_owned(), schema.clone())))
    } else {
        Functions::default()
    };
    let prompt = dialect.reasoning.filter(|_| is_open).map_or("", |marks| marks.open);
    let mut reader = AnswerReader::new(dialect, functions, prompt);
    let (mut rest, mut pieces) = (text, Vec::new());
    let mut lengths = lengths.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().copied().unwrap_or(usize::MAX);
        let at = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(at);
        reader
            .push(piece)
            .into_iter()
            .for_each(|piece| join(&mut pieces, piece));
        rest = after;
    }
    reader.finish().into_iter().for_each(|piece| join(&mut pieces, piece));
    pieces
}

/// Appends a piece, joined with the one before if that goes on.
fn join(pieces: &mut Vec<AnswerPiece>, piece: AnswerPiece) {
    match (pieces.last_mut(), &piece) {
        (Some(AnswerPiece::Text(text)), AnswerPiece::Text(more))
        | (Some(AnswerPiece::Reasoning(text)), AnswerPiece::Reasoning(more))
        | (Some(AnswerPiece::Arguments(text)), AnswerPiece::Arguments(more)) => text.push_str(more),
        (_, AnswerPiece::Text(text) | AnswerPiece::Reasoning(text) | AnswerPiece::Arguments(text))
            if text.is_empty() => {}
        _ => pieces.push(piece),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn answers_are_read_alike_however_they_are_cut(
        dialect in 0..1000usize,
        chosen in prop::collection::vec((0..1000usize, any::<bool>()), 0..14),
        lengths in prop::collection::vec(1..9usize, 1..5),
        has_tools: bool,
        is_open: bool,
    ) {
        let dialects = dialects();
        let dialect = dialects[dialect % dialects.len()];
        let marks = dialect.marks();
        let fragment = |(index, of_dialect): &(usize, bool)| {
            if *of_dialect && !marks.is_empty() {
                marks[index % marks.len()]
            } else {
                FRAGMENTS[index % FRAGMENTS.len()]
            }
        };
        let text: String = chosen.iter().map(fragment).collect();
        let whole = read(dialect, has_tools, is_open, &text, &[]);
        let name = dialect.calls.map(|notation| notation.name).or(dialect.messages.map(|format| format.name));
        prop_assert_eq!(&read(dialect, has_tools, is_open, &text, &lengths), &whole, "{:?} {:?}", name, text);
        prop_assert_eq!(&read(dialect, has_tools, is_open, &text, &[1]), &whole, "{:?} {:?}", name, text);
    }
}
