use super::*;
use crate::sampler::SamplerOptions;
use refrain_formats::TokenizerFiles;

/// A stream whose tokens are written down.
struct Script {
    left: usize,
    tokens: std::vec::IntoIter<u32>,
}

impl Reports for Script {
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

/// Generates the tokens of `text`, then the stop token 306, and returns the pieces given out too.
fn generate_text(
    text: &str,
    context: usize,
    change: impl FnOnce(&mut GenerateOptions<'_>),
    mut until: impl FnMut(&str) -> bool,
) -> (Generation, Vec<String>) {
    let tokenizer = tokenizer();
    let mut tokens = tokenizer.encode(text, false).unwrap();
    tokens.push(306);
    let tokens = tokens.into_iter();
    let mut options = GenerateOptions {
        max_tokens: None,
        sampler: Sampler::new(SamplerOptions::default()).unwrap(),
        stop_ids: vec![306],
        stop_strings: Vec::new(),
        tokenizer: &tokenizer,
    };
    change(&mut options);
    // A prompt of two tokens: the run that sees the last of them reports the first token.
    let mut script = Script {
        left: options.max_tokens.unwrap_or(usize::MAX).min(context - 1),
        tokens,
    };
    let mut pieces = Vec::new();
    let mut on_text = |piece: &str, _: u32| {
        pieces.push(piece.to_owned());
        match until(piece) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let generation = follow(&mut script, 2, 2, Instant::now(), &options, &mut on_text).unwrap();
    (generation, pieces)
}

const TEXT: &str = "Once upon a time, there was a naïve 狐 🦊.";

#[test]
fn text_comes_piece_by_piece_until_the_stop_token() {
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
fn a_stop_string_over_several_tokens_ends_the_text_before_it() {
    let stop = |options: &mut GenerateOptions<'_>| options.stop_strings = vec!["re was a n".into()];
    let (generation, pieces) = generate_text(TEXT, 1000, stop, |_| false);
    assert_eq!(generation.finish, Finish::StopString);
    assert_eq!(generation.text, "Once upon a time, the");
    assert_eq!(pieces.concat(), generation.text);
}

#[test]
fn text_held_back_at_the_end_is_given_out() {
    let stop = |options: &mut GenerateOptions<'_>| options.stop_strings = vec!["🦊. The end".into()];
    let (generation, pieces) = generate_text(TEXT, 1000, stop, |_| false);
    assert_eq!((generation.finish, generation.text.as_str()), (Finish::Stop, TEXT));
    assert_eq!(pieces.concat(), TEXT);
}

#[test]
fn the_length_and_the_context_end_a_text() {
    for most in [1, 3] {
        let (generation, _) = generate_text(TEXT, 1000, |o| o.max_tokens = Some(most), |_| false);
        assert_eq!((generation.ids.len(), generation.finish), (most, Finish::Length));
    }
    // Two tokens of prompt and two generated ones fill it; the fifth is picked but never decoded.
    let (generation, _) = generate_text(TEXT, 4, |_| {}, |_| false);
    assert_eq!((generation.ids.len(), generation.finish), (3, Finish::Context));
}

#[test]
fn the_caller_may_break_off() {
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
fn logits_that_are_not_numbers_are_an_error() {
    let mut broken = Script {
        left: 9,
        tokens: vec![refrain::sample::NOT_A_NUMBER].into_iter(),
    };
    let tokenizer = tokenizer();
    let options = GenerateOptions {
        max_tokens: None,
        sampler: Sampler::new(SamplerOptions::default()).unwrap(),
        stop_ids: Vec::new(),
        stop_strings: Vec::new(),
        tokenizer: &tokenizer,
    };
    let mut ignore = |_: &str, _: u32| ControlFlow::Continue(());
    let error = follow(&mut broken, 2, 2, Instant::now(), &options, &mut ignore).unwrap_err();
    assert!(error.to_string().contains("position 1 are not all numbers"), "{error}");
}
