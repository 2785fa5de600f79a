//! An answer in one of the dialects: a byte for the dialect, a byte for the prompt and the tools, the lengths of pieces
//! up to a NUL byte, and the text. It is read alike however it is cut.

#![no_main]

use std::sync::LazyLock;

use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions, Marks};
use serde_json::json;

static DIALECTS: LazyLock<Vec<Dialect>> = LazyLock::new(|| {
    let think = Marks {
        open: "<think>",
        close: "</think>",
    };
    let with_reasoning = |dialect: Dialect| Dialect {
        reasoning: dialect.messages.is_none().then_some(think),
        ..dialect
    };
    Dialect::all().into_iter().map(with_reasoning).collect()
});

/// Reads an answer in pieces of these lengths, over and over, and joins what belongs together.
fn read(dialect: Dialect, options: u8, text: &str, lengths: &[u8]) -> Vec<AnswerPiece> {
    let schema = json!({"properties": {"x": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object"}}});
    let functions = match options & 1 {
        0 => Functions::default(),
        _ => Functions::new(["f", "g"].map(|name| (name.to_owned(), schema.clone()))),
    };
    let prompt = dialect
        .reasoning
        .filter(|_| options & 2 == 2)
        .map_or("", |marks| marks.open);
    let mut reader = AnswerReader::new(dialect, functions, prompt);
    let (mut rest, mut pieces) = (text, Vec::new());
    let mut lengths = lengths.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| usize::from(*length).max(1));
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(length.min(rest.len())));
        reader
            .push(piece)
            .into_iter()
            .for_each(|piece| join(&mut pieces, piece));
        rest = after;
        let _ = reader.is_reasoning();
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

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [dialect, options, rest @ ..] = input else {
        return;
    };
    let [lengths, text] = refrain_fuzz::parts(rest);
    let text = String::from_utf8_lossy(text);
    let dialect = DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let whole = read(dialect, *options, &text, &[]);
    assert_eq!(read(dialect, *options, &text, lengths), whole);
    assert_eq!(read(dialect, *options, &text, &[1]), whole);
});
