//! Typical uses of the engine as a library.

#[path = "../examples/generate.rs"]
#[allow(dead_code, reason = "`main` is for the command line")]
mod generate;

use std::path::Path;

use refrain_engine::{Device, Finish, GenerateOptions, LoadOptions, Model, Session};
use refrain_models::Checkpoint;
use refrain_text::Tokenizer;

fn demo() -> Checkpoint {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/model");
    Checkpoint::open(&demo).expect("the demo model is in the repository")
}

#[test]
fn example_writes_an_answer() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/model");
    let mut output = Vec::new();
    generate::answer(&demo, "What is 12 + 30?", &Device::cpu(), &mut output).unwrap();
    assert_eq!(String::from_utf8(output).unwrap(), "12 + 30 = 42\n");
}

/// Everything that a program keeps between two requests, in one value.
struct Assistant {
    model: Model,
    session: Session,
    tokenizer: Tokenizer,
    options: GenerateOptions,
}

fn assistant(max_tokens: usize) -> Assistant {
    let checkpoint = demo();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads");
    let tokenizer = checkpoint.tokenizer().expect("a tokenizer");
    Assistant {
        session: Session::new(&model, 256).expect("fits"),
        options: GenerateOptions {
            max_tokens: Some(max_tokens),
            ..GenerateOptions::default()
        },
        model,
        tokenizer,
    }
}

#[test]
fn a_value_with_model_and_sessions_is_send() {
    let mut assistant = assistant(8);
    let prompt = assistant.tokenizer.encode("Once upon a time", true).unwrap();
    let text = std::thread::spawn(move || {
        let Assistant {
            model,
            session,
            tokenizer,
            options,
        } = &mut assistant;
        let generated = session.generate(&prompt, options).unwrap().text(tokenizer);
        let text: String = generated.map(Result::unwrap).collect();
        // A model's clones share its weights; sessions share nothing else.
        let mut other = Session::new(&model.clone(), 64).unwrap();
        let again = other.generate(&prompt, options).unwrap().text(tokenizer);
        assert_eq!(again.map(Result::unwrap).collect::<String>(), text);
        text
    });
    assert!(!text.join().unwrap().is_empty());
}

#[test]
fn dropping_a_generation_keeps_the_tokens_taken_but_the_last() {
    let Assistant {
        mut session,
        tokenizer,
        options,
        ..
    } = assistant(20);
    let prompt = tokenizer.encode("Once upon a time", true).unwrap();
    let taken: Vec<u32> = session
        .generate(&prompt, &options)
        .unwrap()
        .take(5)
        .map(Result::unwrap)
        .collect();
    assert_eq!(session.tokens(), [&prompt[..], &taken[..4]].concat());
    // The session continues as if it had never been interrupted.
    let rest = session.generate(&taken[4..], &options).unwrap();
    let rest: Vec<u32> = rest.take(5).map(Result::unwrap).collect();
    session.rewind(0);
    let mut whole = session.generate(&prompt, &options).unwrap();
    let tokens: Vec<u32> = whole.by_ref().map(Result::unwrap).collect();
    assert_eq!(whole.finish(), Some(Finish::Length));
    assert_eq!(tokens[..10], [taken, rest].concat());
}
