use super::*;
use refrain_text::TokenizerFiles;

/// A stream whose tokens are written down.
struct Script {
    left: usize,
    tokens: std::vec::IntoIter<u32>,
}

impl Reports for &mut Script {
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

/// Tokens behind a prompt of two.
fn generated<'s>(script: &'s mut Script, options: &GenerateOptions) -> GeneratedTokens<'s> {
    GeneratedTokens::new(Some(Box::new(script)), 2, 2, Instant::now(), options)
}

/// Generates the tokens of `text`, then the stop token 306, and returns the pieces given out too.
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
    // A prompt of two tokens: the run that sees the last of them reports the first token.
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
    (text.end().unwrap(), pieces)
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
    let stop = |options: &mut GenerateOptions| options.stop_strings = vec!["re was a n".into()];
    let (generation, pieces) = generate_text(TEXT, 1000, stop, |_| false);
    assert_eq!(generation.finish, Finish::StopString);
    assert_eq!(generation.text, "Once upon a time, the");
    assert_eq!(pieces.concat(), generation.text);
}

#[test]
fn text_held_back_at_the_end_is_given_out() {
    let stop = |options: &mut GenerateOptions| options.stop_strings = vec!["🦊. The end".into()];
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
        tokens: vec![refrain_lm::sample::NOT_A_NUMBER].into_iter(),
    };
    let tokenizer = tokenizer();
    let mut text = generated(&mut broken, &GenerateOptions::default()).text(&tokenizer);
    let error = text.next().expect("something").unwrap_err();
    assert!(error.to_string().contains("position 1 are not all numbers"), "{error}");
    assert!(text.next().is_none(), "there is no text behind an error");
}

#[test]
fn tokens_come_one_by_one_without_their_text() {
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
