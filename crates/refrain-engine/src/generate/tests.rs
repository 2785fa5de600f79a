use std::time::Instant;

use super::*;
use crate::Error;
use refrain_text::TokenizerFiles;

/// A source of scripted tokens.
struct Script {
    left: usize,
    tokens: std::vec::IntoIter<u32>,
}

impl TokenSource for &mut Script {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        Ok(Some(self.tokens.next().expect("no token is asked for after the end")))
    }
}

fn tokenizer() -> Tokenizer {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/qwen3-bf16");
    TokenizerFiles::open(fixture.as_ref()).unwrap().tokenizer().unwrap()
}

/// Generates after a prompt of two tokens.
fn generated<'s>(script: &'s mut Script, options: &GenerateOptions) -> GeneratedTokens<'s> {
    GeneratedTokens::new(Some(Box::new(script)), 2, 2, Instant::now(), options)
}

/// Generates the tokens of `text`, then the stop token 306. Also returns the emitted pieces.
fn generate_text(
    text: &str,
    context: usize,
    change: impl FnOnce(&mut GenerateOptions),
    mut until: impl FnMut(&str) -> bool,
) -> (Generation, Vec<String>) {
    let tokenizer = tokenizer();
    let mut tokens = tokenizer.encode(text, false).unwrap();
    tokens.push(306);
    let tokens = tokens.into_iter();
    let mut options = GenerateOptions {
        stop_ids: vec![306],
        ..GenerateOptions::default()
    };
    change(&mut options);
    // A prompt of two tokens: the run that sees the last of them outputs the first token.
    let mut script = Script {
        left: options.max_tokens.unwrap_or(usize::MAX).min(context - 1),
        tokens,
    };
    let mut pieces = Vec::new();
    let mut text = generated(&mut script, &options).text(&tokenizer);
    for piece in &mut text {
        let piece = piece.unwrap();
        let enough = until(&piece);
        pieces.push(piece);
        if enough {
            break;
        }
    }
    (text.end(), pieces)
}

const TEXT: &str = "Once upon a time, there was a naïve 狐 🦊.";

#[test]
fn emits_pieces_until_the_stop_token() {
    let (generation, pieces) = generate_text(TEXT, 1000, |_| {}, |_| false);
    assert_eq!(generation.text, TEXT);
    assert_eq!(pieces.concat(), TEXT);
    assert!(pieces.len() > 5);
    assert_eq!(generation.finish, Finish::Stop);
    assert_eq!(generation.prompt_tokens, 2);
    assert_eq!(generation.ids, tokenizer().encode(TEXT, false).unwrap());
    assert_eq!(generation.decoded, generation.ids.len());
}

#[test]
fn ends_before_a_stop_string_across_tokens() {
    let stop = |options: &mut GenerateOptions| options.stop_strings = vec!["re was a n".into()];
    let (generation, pieces) = generate_text(TEXT, 1000, stop, |_| false);
    assert_eq!(generation.finish, Finish::StopString);
    assert_eq!(generation.text, "Once upon a time, the");
    assert_eq!(pieces.concat(), generation.text);
}

#[test]
fn emits_pending_text_at_the_end() {
    let stop = |options: &mut GenerateOptions| options.stop_strings = vec!["🦊. The end".into()];
    let (generation, pieces) = generate_text(TEXT, 1000, stop, |_| false);
    assert_eq!((generation.finish, generation.text.as_str()), (Finish::Stop, TEXT));
    assert_eq!(pieces.concat(), TEXT);
}

#[test]
fn ends_at_the_token_limit_and_the_full_context() {
    for limit in [1, 3] {
        let (generation, _) = generate_text(TEXT, 1000, |o| o.max_tokens = Some(limit), |_| false);
        assert_eq!((generation.ids.len(), generation.finish), (limit, Finish::Length));
    }
    // Two prompt tokens and two generated ones fill the context; the fifth token is sampled but never decoded.
    let (generation, _) = generate_text(TEXT, 4, |_| {}, |_| false);
    assert_eq!((generation.ids.len(), generation.finish), (3, Finish::Context));
}

#[test]
fn reports_interruption_by_the_caller() {
    let mut left = 3;
    let until = |_: &str| {
        left -= 1;
        left == 0
    };
    let (generation, pieces) = generate_text(TEXT, 1000, |_| {}, until);
    assert_eq!((generation.finish, generation.ids.len()), (Finish::Interrupted, 3));
    assert_eq!(pieces.concat(), generation.text);
}

#[test]
fn reports_logits_that_are_not_finite() {
    let mut broken = Script {
        left: 9,
        tokens: vec![refrain_lm::sample::NOT_A_NUMBER].into_iter(),
    };
    let tokenizer = tokenizer();
    let mut text = generated(&mut broken, &GenerateOptions::default()).text(&tokenizer);
    let error = text.next().expect("something").unwrap_err();
    assert!(error.to_string().contains("position 1 contain NaN"), "{error}");
    assert!(text.next().is_none(), "there is no text after an error");
}

#[test]
fn iterates_over_tokens_without_text() {
    let mut script = Script {
        left: 9,
        tokens: vec![5, 6, 306].into_iter(),
    };
    let options = GenerateOptions {
        stop_ids: vec![306],
        ..GenerateOptions::default()
    };
    let mut tokens = generated(&mut script, &options);
    let taken: Vec<u32> = tokens.by_ref().map(Result::unwrap).collect();
    assert_eq!((&taken[..], tokens.ids()), (&[5, 6][..], &[5, 6][..]));
    assert_eq!(tokens.finish(), Some(Finish::Stop));
}
