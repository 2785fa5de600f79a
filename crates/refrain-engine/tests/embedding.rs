//! Typical uses of the engine as a library.

#[path = "../examples/generate.rs"]
#[allow(dead_code, reason = "`main` is for the command line")]
mod generate;

use std::path::Path;

use refrain_engine::{Device, Engine, EngineOptions, EngineRequest, Finish, GenerateOptions, LoadOptions, Model};
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
    engine: Engine,
    tokenizer: Tokenizer,
    options: GenerateOptions,
}

fn assistant(max_tokens: usize) -> Assistant {
    let checkpoint = demo();
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads");
    let tokenizer = checkpoint.tokenizer().expect("a tokenizer");
    Assistant {
        engine: Engine::start(&model, &EngineOptions::single(256)).expect("starts"),
        options: GenerateOptions {
            max_tokens: Some(max_tokens),
            ..GenerateOptions::default()
        },
        model,
        tokenizer,
    }
}

#[test]
fn a_value_with_model_and_engine_is_send() {
    let assistant = assistant(8);
    let prompt = assistant.tokenizer.encode("Once upon a time", true).unwrap();
    let text = std::thread::spawn(move || {
        let Assistant {
            model,
            engine,
            tokenizer,
            options,
        } = assistant;
        let generated = |engine: &Engine| -> String {
            let request = EngineRequest::new(prompt.clone(), options.clone());
            let pieces = engine.generate(request).unwrap().text(&tokenizer);
            pieces.map(Result::unwrap).collect()
        };
        let text = generated(&engine);
        // A model's clones share its weights; engines share nothing else.
        let other = Engine::start(&model.clone(), &EngineOptions::single(64)).unwrap();
        assert_eq!(generated(&other), text);
        text
    });
    assert!(!text.join().unwrap().is_empty());
}

#[test]
fn a_generation_that_is_dropped_goes_on_later() {
    let Assistant {
        engine,
        tokenizer,
        options,
        ..
    } = assistant(20);
    let prompt = tokenizer.encode("Once upon a time", true).unwrap();
    let generate = |text: Vec<u32>| engine.generate(EngineRequest::new(text, options.clone())).unwrap();
    let taken: Vec<u32> = generate(prompt.clone()).take(5).map(Result::unwrap).collect();
    // It continues as if it had never been interrupted.
    let rest: Vec<u32> = generate([&prompt[..], &taken].concat())
        .take(5)
        .map(Result::unwrap)
        .collect();
    let mut whole = generate(prompt.clone());
    let tokens: Vec<u32> = whole.by_ref().map(Result::unwrap).collect();
    assert_eq!(whole.finish(), Some(Finish::Length));
    assert_eq!(tokens[..10], [taken, rest].concat());
}
