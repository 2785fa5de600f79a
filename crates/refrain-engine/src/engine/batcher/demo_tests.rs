//! Drafts for the demo model change no text, and most of them are accepted.

use std::path::{Path, PathBuf};

use refrain::Device;
use refrain_models::Checkpoint;
use refrain_text::Conversation;
use serde_json::{Value, json};

use super::drafts::Speculator;
use super::test_support::TestRequest;
use super::{Batcher, DeviceRunner};
use crate::engine::EngineOptions;
use crate::engine::request::EngineEvent;
use crate::engine::speculation::Speculation;
use crate::{GenerateOptions, LoadOptions, Model};

const CONTEXT: usize = 1024;
/// Most texts that a draft model keeps keys and values of.
const STREAMS: usize = 4;
const MAX_ANSWER: usize = 120;
/// Tokens of a draft. Head and draft model were trained for so many.
const DRAFT: usize = 3;

const STORIES: [&str; 3] = [
    "Tell me a story about a fox named Pip who loses a key.",
    "Tell me a story about a girl named Mia who finds a lamp.",
    "Write a story about an owl named Otto.",
];

const SUMS: [&str; 2] = [
    "Please solve:\n123 + 456\n78 - 12\n9 + 5\n800 - 244",
    "123 + 456 = 579\n78 - 12 = 66\n9 + 5 = 14\n800 - 244 = 556",
];

const LIST: [&str; 3] = [
    "Here is a list:\nAnna: 42\nboat: 7\nOslo: 310\nfox: 88\nlamp: 516\nMia: 23",
    "What are the values of these?\nAnna\nboat\nOslo\nfox\nlamp\nMia",
    "Anna: 42\nboat: 7\nOslo: 310\nfox: 88\nlamp: 516\nMia: 23",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo")
}

fn demo() -> Checkpoint {
    Checkpoint::open(&folder().join("model")).expect("the demo model is in the repository")
}

/// Opens the demo model with its multi-token prediction head, in a file of its own beside the model's.
fn with_head() -> Checkpoint {
    let read = |file: &str| std::fs::read(folder().join(file)).unwrap_or_else(|why| panic!("demo/{file}: {why}"));
    let mut config: Value = serde_json::from_slice(&read("model/config.json")).expect("JSON");
    config["mtp_num_hidden_layers"] = json!(1);
    Checkpoint::from_files([
        ("config.json", config.to_string().into_bytes()),
        ("model-00001-of-00002.safetensors", read("model/model.safetensors")),
        ("model-00002-of-00002.safetensors", read("mtp/model.safetensors")),
    ])
    .expect("opens")
}

fn load(checkpoint: &Checkpoint, mtp_head: bool) -> Model {
    let options = LoadOptions {
        mtp_head,
        ..LoadOptions::default()
    };
    Model::load(checkpoint, &Device::cpu(), &options).expect("loads")
}

/// A message of the user, an answer, and so on.
fn conversation(texts: &[&str]) -> Conversation {
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages = roles
        .zip(texts)
        .map(|(role, text)| json!({ "role": role, "content": text }));
    Conversation {
        messages: messages.collect(),
        ..Conversation::default()
    }
}

/// Returns stories, and some of the held-out sums and lists.
fn held_out() -> Vec<Conversation> {
    let file = std::fs::read(folder().join("questions.json")).expect("in the repository");
    let all: Vec<Value> = serde_json::from_slice(&file).expect("JSON");
    let of_subject = |subject: &'static str, one_in: usize| {
        let own = all.iter().filter(move |question| {
            let found = question["subject"].as_str().expect("a subject");
            found.starts_with(subject)
        });
        own.step_by(one_in).map(|question| Conversation {
            messages: question["messages"].as_array().expect("messages").clone(),
            ..Conversation::default()
        })
    };
    let stories = STORIES.iter().map(|story| conversation(&[story]));
    stories
        .chain(of_subject("sums", 5))
        .chain(of_subject("recall", 8))
        .collect()
}

/// Returns the tokens of conversations, up to where the answer begins.
fn prompts(conversations: &[Conversation]) -> Vec<Vec<u32>> {
    let demo = demo();
    let tokenizer = demo.tokenizer().expect("a tokenizer");
    let template = demo.chat_template().expect("readable").expect("a template");
    let tokens = |conversation| {
        let text = template.render(conversation, true).expect("renders");
        tokenizer.encode_rendered(&text).expect("tokens")
    };
    conversations.iter().map(tokens).collect()
}

fn batcher(model: &Model, speculation: Speculation, draft: Option<&Model>) -> Batcher<DeviceRunner> {
    let options = EngineOptions {
        context: CONTEXT,
        streams: STREAMS,
        cache_tokens: STREAMS * CONTEXT,
        speculation,
        draft: draft.cloned(),
        ..EngineOptions::default()
    };
    Batcher::new(model, &options).expect("fits")
}

/// Returns greedy answers.
fn answers(batcher: &mut Batcher<DeviceRunner>, prompts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let stop_ids = demo().generation().eos_ids.clone();
    let submit = |(prompt, number): (&Vec<u32>, u64)| {
        let request = TestRequest {
            number,
            prompt: prompt.clone(),
            tokens: MAX_ANSWER,
            stop_ids: stop_ids.clone(),
            ..TestRequest::default()
        };
        request.submit_with(batcher, GenerateOptions::default()).0
    };
    let submitted: Vec<_> = prompts.iter().zip(0..).map(submit).collect();
    while !batcher.is_idle() {
        batcher.step().expect("goes on");
    }
    let token = |event| match event {
        EngineEvent::Token(token) => Some(token.id),
        EngineEvent::End(_) => None,
        other => panic!("{other:?}"),
    };
    let tokens = submitted
        .iter()
        .map(|events| events.try_iter().filter_map(token).collect());
    tokens.collect()
}

/// Answers with drafts equal those without. At least so many of a hundred tokens of drafts are accepted.
fn check(mut drafting: Batcher<DeviceRunner>, conversations: &[Conversation], percent: u64) {
    let prompts = prompts(conversations);
    let mut plain = batcher(&load(&demo(), false), Speculation::Off, None);
    let expected = answers(&mut plain, &prompts);
    assert_eq!(answers(&mut drafting, &prompts), expected);
    let load = drafting.load();
    let (drafted, accepted) = (load.draft_tokens, load.accepted_tokens.iter().sum::<u64>());
    let written: usize = expected.iter().map(Vec::len).sum();
    println!("{accepted} of {drafted} tokens accepted, {written} written");
    assert_eq!(plain.load().draft_tokens, 0);
    assert!(
        drafted as usize >= written / 2,
        "{drafted} tokens of drafts for {written}"
    );
    assert!(
        100 * accepted >= percent * drafted,
        "{accepted} of {drafted} tokens accepted"
    );
}

#[test]
fn the_head_drafts_what_the_demo_model_writes() {
    let mut batcher = batcher(&load(&with_head(), true), Speculation::Mtp, None);
    batcher.speculator = batcher.speculator.take().map(|own| own.drafting(DRAFT));
    check(batcher, &held_out(), 50);
}

#[test]
fn the_draft_model_drafts_what_the_demo_model_writes() {
    let draft = Checkpoint::open(&folder().join("draft")).expect("the draft model is in the repository");
    let draft = load(&draft, false);
    let mut batcher = batcher(&load(&demo(), false), Speculation::Model, Some(&draft));
    batcher.speculator = batcher.speculator.take().map(|own| own.drafting(DRAFT));
    check(batcher, &held_out(), 50);
}

#[test]
fn prompt_lookup_drafts_what_the_demo_model_copies() {
    let [list, question, values] = LIST;
    let sums = conversation(&[SUMS[0], SUMS[1], SUMS[0]]);
    let lists = conversation(&[&format!("{list}\n\n{question}"), values, question]);
    let mut batcher = batcher(&load(&demo(), false), Speculation::Ngram, None);
    batcher.speculator = batcher.speculator.take().map(Speculator::eager);
    check(batcher, &[sums, lists], 90);
}
