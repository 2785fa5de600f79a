//! Drafts of a model's own multi-token prediction head, on devices.

use std::path::Path;
use std::sync::{Arc, Mutex};

use refrain::Device;
use refrain_models::{Batch, Checkpoint, Pages};
use refrain_testing::sample;

use super::drafts::Speculator;
use super::test_support::{Scripted, ask, gpu, prompt, speculating};
use super::{Batcher, DeviceRunner};
use crate::engine::request::EngineEvent;
use crate::engine::speculation::{Draft, Proposer, Speculation};
use crate::{GenerateOptions, LoadOptions, Model};

const TOKENS: usize = 40;

fn load(spec: &str, device: &Device) -> Model {
    load_checkpoint(&Checkpoint::synthetic(spec).expect("a checkpoint"), device)
}

fn load_checkpoint(checkpoint: &Checkpoint, device: &Device) -> Model {
    let options = LoadOptions {
        mtp_head: true,
        ..LoadOptions::default()
    };
    Model::load(checkpoint, device, &options).expect("loads")
}

/// Returns a batcher whose drafts are verified whatever steps take.
fn eager(model: &Model, speculation: Speculation) -> Batcher<DeviceRunner> {
    let mut batcher = speculating(model, speculation);
    batcher.speculator = batcher.speculator.take().map(Speculator::eager);
    batcher
}

/// Returns the texts of requests, prompts included.
fn texts(mut batcher: Batcher<DeviceRunner>, requests: u64) -> (Vec<Vec<u32>>, u64) {
    let submitted: Vec<_> = (0..requests).map(|number| ask(&mut batcher, number, TOKENS)).collect();
    while !batcher.is_idle() {
        batcher.step().expect("goes on");
    }
    let texts = submitted.iter().zip(0..).map(|(events, number)| {
        let mut text = prompt(number);
        text.extend(events.try_iter().filter_map(|event| match event {
            EngineEvent::Token(token) => Some(token.id),
            _ => None,
        }));
        assert_eq!(text.len(), prompt(number).len() + TOKENS);
        text
    });
    (texts.collect(), batcher.load().draft_tokens)
}

/// A draft of the head: the text, the number of its tokens before the draft, and the draft.
type Offer = (Vec<u32>, usize, Vec<u32>);

/// Proposes what follows in known texts, with mistakes, and notes what the head drafts.
struct Observing {
    scripted: Scripted,
    begun: Vec<Vec<u32>>,
    texts: Vec<Vec<u32>>,
    offers: Arc<Mutex<Vec<Offer>>>,
}

impl Proposer for Observing {
    fn prefill(&mut self, slot: usize, tokens: &[u32], options: &GenerateOptions) {
        self.begun[slot] = tokens.to_vec();
        self.scripted.prefill(slot, tokens, options);
    }

    fn commit(&mut self, slot: usize, tokens: &[u32]) {
        self.scripted.commit(slot, tokens);
    }

    fn offer(&mut self, slot: usize, length: usize, tokens: Vec<u32>) {
        let mut known = self.texts.iter().filter(|text| text.starts_with(&self.begun[slot]));
        let text = known.next().expect("a known text").clone();
        self.offers.lock().expect("one thread").push((text, length, tokens));
    }

    fn propose(&mut self, slot: usize, max: usize) -> Draft {
        self.scripted.propose(slot, max)
    }
}

/// Returns the `count` tokens that the head drafts behind a text, computed from its beginning in one piece.
fn drafted(model: &Model, text: &[u32], count: usize) -> Vec<u32> {
    let (device, decoder) = (model.device(), model.decoder());
    let head = decoder.mtp_head().expect("a head");
    let pages = Pages {
        size: 256,
        per_sequence: 1,
        context: 256,
    };
    let batch = |tokens: &[u32], first: usize| Batch::of_sequence(device, tokens, first, pages);
    let mut states = decoder.new_states(model.cache_types(), pages, 1).expect("fits");
    let mut state = head.new_state(model.cache_types(), pages, 1).expect("fits");
    let last = text.len() - 1;
    let hidden = decoder.hidden(&batch(&text[..last], 0), &mut states);
    let all = head.hidden(&batch(&text[1..], 0), &hidden, &mut state);
    let mut hidden = all.slice(0, last - 1, last);
    let mut tokens = vec![];
    while tokens.len() < count {
        let best = decoder.logits(&hidden).argmax();
        refrain::eval(&[&best, &hidden]).expect("computes");
        let token: Vec<u32> = best.to_vec().expect("computed");
        tokens.extend_from_slice(&token);
        let position = last + tokens.len() - 1;
        hidden = head.hidden(&batch(&token, position), &hidden, &mut state);
    }
    tokens
}

/// Whatever of a draft was accepted, the head then drafts what it drafts behind the whole text, as far as a page goes.
fn check_drafts(model: &Model, requests: u64, one_in: usize) {
    let (texts, _) = texts(eager(model, Speculation::Off), requests);
    let offers = Arc::new(Mutex::new(vec![]));
    let mut batcher = eager(model, Speculation::Mtp);
    batcher.speculator = Some(
        Speculator::new(Box::new(Observing {
            scripted: Scripted::new(texts.clone(), 3),
            begun: vec![vec![]; 4],
            texts: texts.clone(),
            offers: offers.clone(),
        }))
        .eager(),
    );
    assert_eq!(self::texts(batcher, requests).0, texts);
    let offers = offers.lock().expect("one thread");
    let lengths: Vec<usize> = offers.iter().map(|(_, length, _)| *length).collect();
    assert!(lengths.len() > 5, "{lengths:?}");
    for (text, length, tokens) in offers.iter().step_by(one_in) {
        // Position of the last verified token: what follows it is the last token of the text.
        let in_page = 64 - (length - 2) % 64;
        let certain = tokens.len().min(in_page);
        let expected = drafted(model, &text[..*length], certain);
        assert_eq!(tokens[..certain], expected, "behind {length} tokens");
    }
}

/// Texts equal those without drafts.
fn check_texts(model: &Model, requests: u64) {
    let (expected, none) = texts(eager(model, Speculation::Off), requests);
    let (found, drafts) = texts(eager(model, Speculation::Mtp), requests);
    assert_eq!(found, expected);
    assert!(none == 0 && drafts > 0, "{drafts} tokens of drafts");
}

#[test]
fn heads_draft_on_the_cpu() {
    let model = load("tiny-mtp:f32", &Device::cpu());
    check_texts(&model, 4);
    check_drafts(&model, 3, 4);
    let without = super::test_support::load("tiny-mtp:f32", &Device::cpu());
    assert!(without.config().mtp_layers == 0 && without.weight_bytes() < model.weight_bytes());
    assert_eq!(texts(eager(&without, Speculation::Mtp), 1).1, 0);
}

#[test]
fn heads_of_each_family_draft() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    for name in sample(["qwen3.5-mtp-f16", "glm4-moe-mtp-bf16", "deepseek-v3-mtp-f16"], 2) {
        let checkpoint = Checkpoint::open(&fixtures.join(name)).expect("opens");
        check_texts(&load_checkpoint(&checkpoint, &Device::cpu()), 2);
    }
}

#[test]
fn heads_draft_on_a_gpu() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let model = load("tiny-mtp:f16", &gpu());
    check_texts(&model, 2);
    check_drafts(&model, 2, 8);
}
