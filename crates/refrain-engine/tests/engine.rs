//! An engine of requests says of each what a session says of it alone.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{TestGpu, model};
use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, EngineTicket, Error, Finish, GenerateOptions, Model,
    PickedToken, Sampler, SamplerOptions, Session, TokenConstraint,
};
use refrain_testing::wait_until;

const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// `length` tokens that differ by `number`.
fn prompt(number: u32, length: u32) -> Vec<u32> {
    (0..length)
        .map(|at| (7 * number + 13 * at + at * at) % 200 + 3)
        .collect()
}

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(tokens),
        ..GenerateOptions::default()
    }
}

fn seeded(tokens: usize, seed: u64) -> GenerateOptions {
    let options = SamplerOptions {
        temperature: 0.9,
        top_k: 20,
        repeat_penalty: 1.1,
        seed,
        ..SamplerOptions::default()
    };
    GenerateOptions {
        sampler: Sampler::new(options).expect("valid"),
        ..greedy(tokens)
    }
}

/// A request under way.
struct Asked {
    _ticket: EngineTicket,
    heard: Receiver<EngineEvent>,
}

impl Asked {
    fn next(&self) -> EngineEvent {
        self.heard.recv_timeout(LONGEST_WAIT).expect("the engine goes on")
    }

    fn answer(self) -> (Vec<u32>, Finish) {
        let (tokens, finish) = self.picked();
        (tokens.iter().map(|token| token.id).collect(), finish)
    }

    fn picked(self) -> (Vec<PickedToken>, Finish) {
        let mut tokens = vec![];
        loop {
            match self.next() {
                EngineEvent::Token(token) => tokens.push(token),
                EngineEvent::End(finish) => return (tokens, finish),
                EngineEvent::Failed(error) => panic!("{error}"),
                EngineEvent::Embedding(_) => panic!("a text was asked for"),
            }
        }
    }
}

fn ask(engine: &Engine, prompt: &[u32], options: &GenerateOptions) -> Result<Asked, Error> {
    ask_for(engine, EngineRequest::new(prompt.to_vec(), options.clone()))
}

fn ask_for(engine: &Engine, request: EngineRequest) -> Result<Asked, Error> {
    let (events, heard) = channel();
    let ticket = engine.submit(request, Box::new(move |event| drop(events.send(event))))?;
    Ok(Asked { _ticket: ticket, heard })
}

fn alone(model: &Model, context: usize, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let mut session = Session::new(model, context).expect("fits");
    let tokens = session.generate(prompt, options).expect("begins");
    tokens.collect::<Result<_, _>>().expect("goes on")
}

/// Asks for all at once, some of them later than others, and compares with each alone.
fn compare(model: &Model, options: &EngineOptions, requests: &[(Vec<u32>, GenerateOptions)]) -> Engine {
    let engine = Engine::start(model, options).expect("starts");
    let (first, later) = requests.split_at(requests.len() / 2);
    let mut asked: Vec<Asked> = first.iter().map(|(p, o)| ask(&engine, p, o).expect("taken")).collect();
    // The others join while these are under way.
    std::thread::sleep(Duration::from_millis(30));
    asked.extend(later.iter().map(|(p, o)| ask(&engine, p, o).expect("taken")));
    for (number, (asked, (prompt, generate))) in asked.into_iter().zip(requests).enumerate() {
        let (tokens, finish) = asked.answer();
        assert_eq!(
            tokens,
            alone(model, options.context, prompt, generate),
            "request {number}"
        );
        assert_eq!(finish, Finish::Length, "request {number}");
    }
    engine
}

fn requests() -> Vec<(Vec<u32>, GenerateOptions)> {
    let lengths = [1, 70, 130, 64, 65];
    let request = |(number, length): (usize, u32)| {
        let number = number as u32;
        let options = match number % 2 {
            0 => greedy(12 + number as usize),
            _ => seeded(20, u64::from(number)),
        };
        (prompt(number, length), options)
    };
    lengths.into_iter().enumerate().map(request).collect()
}

fn options(streams: usize, cache_tokens: usize) -> EngineOptions {
    EngineOptions {
        context: 256,
        streams,
        cache_tokens,
        ..EngineOptions::default()
    }
}

#[test]
fn texts_computed_together_are_those_computed_alone() {
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        for spec in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
            compare(&model(spec, device), &options(4, 1024), &requests());
        }
    }
    gpu.assert_silent();
}

#[test]
fn where_pages_run_out_the_last_come_waits_and_nothing_is_lost() {
    let gpu = TestGpu::open();
    let request = |number: u32| (prompt(number, 40), seeded(100, u64::from(number)));
    let requests: Vec<_> = (0..4).map(request).collect();
    for device in [&Device::cpu(), &gpu.device] {
        // Each request comes to need three of four pages.
        compare(&model("qwen3-bf16", device), &options(4, 256), &requests);
    }
}

#[test]
fn a_prompt_that_begins_like_another_is_computed_from_where_they_part() {
    let gpu = TestGpu::open();
    let model = model("qwen3-bf16", &gpu.device);
    let engine = Engine::start(&model, &options(2, 1024)).expect("starts");
    let mut prompt = prompt(1, 150);
    let first = ask(&engine, &prompt, &greedy(20)).expect("taken").answer().0;
    assert_eq!(engine.load().cached_tokens, 0);
    // The same, what was said, and more: three pages of 64 are known then.
    prompt.extend(&first);
    prompt.extend([5, 6, 7]);
    prompt.extend(prompt.clone().iter().take(40));
    prompt.truncate(200);
    let second = ask(&engine, &prompt, &greedy(20)).expect("taken").answer().0;
    assert_eq!(second, alone(&model, 256, &prompt, &greedy(20)));
    assert_eq!(engine.load().cached_tokens, 128);
    let forgetful = EngineOptions {
        prefix_cache: false,
        ..options(2, 1024)
    };
    let engine = Engine::start(&model, &forgetful).expect("starts");
    for _ in 0..2 {
        ask(&engine, &prompt, &greedy(2)).expect("taken").answer();
    }
    assert_eq!(engine.load().cached_tokens, 0);
}

#[test]
fn recurrent_states_are_known_where_a_prompt_ended_and_where_others_part_from_it() {
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("qwen3.5-moe-bf16", device);
        let engine = Engine::start(&model, &options(2, 2048)).expect("starts");
        let mut cached = 0;
        // Tokens of the prompt that need not be taken in again.
        let mut known = |prompt: &[u32]| {
            let text = ask(&engine, prompt, &greedy(3)).expect("taken").answer().0;
            assert_eq!(text, alone(&model, 256, prompt, &greedy(3)), "{} tokens", prompt.len());
            let before = std::mem::replace(&mut cached, engine.load().cached_tokens);
            (cached - before, text)
        };
        let first = prompt(1, 150);
        let (none, text) = known(&first);
        assert_eq!((none, known(&first).0), (0, 128));
        let next_turn = [&first, &text[..], &prompt(2, 20)].concat();
        assert_eq!(known(&next_turn).0, 128);
        // Known are the tokens of the page, but not the states behind it, until a second prompt has shown the way.
        let parts = |number| [&first[..70], &prompt(number, 50)].concat();
        assert_eq!([3, 4, 5].map(|number| known(&parts(number)).0), [0, 64, 64]);
        assert_eq!(known(&next_turn).0, 128);
    }
}

#[test]
fn who_leaves_makes_room() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(1, 256)).expect("starts");
    let long = ask(&engine, &prompt(1, 3), &greedy(250)).expect("taken");
    let waiting = ask(&engine, &prompt(2, 3), &greedy(2)).expect("taken");
    assert!(matches!(long.next(), EngineEvent::Token(_)));
    drop(long);
    assert_eq!(waiting.answer().0.len(), 2);
    wait_until("nobody is served", || {
        engine.load().running + engine.load().pages_in_use == 0
    });
    assert_eq!((engine.load().running, engine.load().waiting), (0, 0));
    assert_eq!(engine.load().pages_in_use, 0, "what is only remembered is free");
}

#[test]
fn texts_end_by_a_stop_token_at_their_length_or_with_the_context() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(2, 256)).expect("starts");
    let finish =
        |length: u32, options: &GenerateOptions| ask(&engine, &prompt(1, length), options).expect("taken").answer();
    let (tokens, end) = finish(4, &greedy(9));
    assert_eq!((tokens.len(), end), (9, Finish::Length));
    let stop = GenerateOptions {
        stop_ids: vec![tokens[4]],
        ..greedy(9)
    };
    let until = tokens.iter().position(|id| *id == tokens[4]).expect("there");
    assert_eq!(finish(4, &stop), (tokens[..until].to_vec(), Finish::Stop));
    let (tokens, end) = finish(250, &GenerateOptions::default());
    assert_eq!((tokens.len(), end), (6, Finish::Context));
    assert_eq!(finish(250, &greedy(0)).1, Finish::Length);
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let model = model("tiny:f32", &Device::cpu());
    let narrow = EngineOptions {
        queue: 1,
        ..options(1, 256)
    };
    let engine = Engine::start(&model, &narrow).expect("starts");
    let said = |prompt: &[u32]| match ask(&engine, prompt, &greedy(1)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("taken"),
    };
    assert!(said(&[]).contains("the prompt is empty"));
    assert!(said(&prompt(0, 256)).contains("257 tokens do not fit in a context of 256"));
    assert!(said(&[1, u32::MAX]).contains("out of range"));
    // The engine stands still while somebody listens, so that none of these comes to its end.
    let (release, gate) = channel::<()>();
    let held = EngineRequest::new(vec![1, 2], greedy(2));
    let listener = Box::new(move |_| {
        let _ = gate.recv();
    });
    let held = engine.submit(held, listener).expect("taken");
    let waiting = ask(&engine, &[1, 2], &greedy(2)).expect("taken");
    assert!(said(&[1]).contains("2 requests are running or waiting already"));
    drop((release, held, waiting));
    wait_until("there is room", || ask(&engine, &[1], &greedy(1)).is_ok());
    assert!(Engine::start(&model, &options(1, 256)).is_ok());
    let beyond = EngineOptions {
        context: model.config().max_position + 1,
        ..narrow
    };
    assert!(matches!(
        Engine::start(&model, &beyond),
        Err(Error::ContextRange { .. })
    ));
}

/// ln softmax of the logits behind each token but the last.
fn log_probabilities(model: &Model, tokens: &[u32]) -> Vec<Vec<f64>> {
    let mut session = Session::new(model, 256).expect("fits");
    let logits = session.extend_logits(&tokens[..tokens.len() - 1]).expect("computes");
    let of_row = |row: &[f32]| {
        let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        row.iter().map(|logit| f64::from(*logit) - total.ln()).collect()
    };
    logits.chunks_exact(session.vocabulary()).map(of_row).collect()
}

#[test]
fn who_asks_hears_how_likely_tokens_were_and_nobody_hears_another_text() {
    let gpu = TestGpu::open();
    let reference = model("granite-bf16", &Device::cpu());
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("granite-bf16", device);
        let engine = Engine::start(&model, &options(4, 1024)).expect("starts");
        // Who does not ask is decoded beside those who do.
        let requests = requests();
        let likeliest = [Some(20), None, Some(3), Some(0), Some(5)];
        let asked = requests.iter().zip(likeliest).map(|((prompt, options), likeliest)| {
            let request = EngineRequest::new(prompt.clone(), options.clone());
            ask_for(&engine, EngineRequest { likeliest, ..request }).expect("taken")
        });
        let asked: Vec<Asked> = asked.collect();
        for (number, (asked, (prompt, options))) in asked.into_iter().zip(&requests).enumerate() {
            let (picked, _) = asked.picked();
            let ids: Vec<u32> = picked.iter().map(|token| token.id).collect();
            assert_eq!(ids, alone(&model, 256, prompt, options), "request {number}");
            let all = log_probabilities(&reference, &[&prompt[..], &ids].concat());
            for (token, expected) in picked.iter().zip(&all[prompt.len() - 1..]) {
                let Some(told) = &token.likelihoods else {
                    assert_eq!(likeliest[number], None);
                    continue;
                };
                let near = |found: f32, id: u32| {
                    let expected = expected[id as usize];
                    assert!((f64::from(found) - expected).abs() < 1e-3, "{found} is not {expected}");
                };
                near(told.picked, token.id);
                assert_eq!(Some(told.likeliest.len()), likeliest[number]);
                told.likeliest.iter().for_each(|&(id, found)| near(found, id));
                assert!(told.likeliest.is_sorted_by(|a, b| a.1 >= b.1), "{told:?}");
                let most = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                if let Some(&(first, likely)) = told.likeliest.first() {
                    assert!((f64::from(likely) - most).abs() < 1e-3);
                    // Even requests take the likeliest token.
                    assert!(number % 2 == 1 || first == token.id);
                }
            }
        }
    }
    gpu.assert_silent();
}

/// Tokens of one remainder alone, until there are enough.
struct EveryThird {
    remainder: u32,
    left: usize,
}

impl TokenConstraint for EveryThird {
    fn allow(&mut self, bits: &mut [u32]) -> Result<(), String> {
        let allowed = (0..32 * bits.len() as u32).filter(|id| id % 3 == self.remainder);
        allowed.for_each(|id| bits[id as usize / 32] |= 1 << (id % 32));
        match self.left {
            100.. => Err("there is no way on".to_owned()),
            _ => Ok(()),
        }
    }

    fn take(&mut self, token: u32) -> Result<bool, String> {
        assert_eq!(token % 3, self.remainder);
        self.left -= 1;
        Ok(self.left == 0)
    }
}

#[test]
fn constraints_leave_the_likeliest_of_what_they_allow_and_others_their_texts() {
    let gpu = TestGpu::open();
    let reference = model("llama-f32", &Device::cpu());
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("llama-f32", device);
        // The last to come finds no page at first, and gives its own up on the way.
        let engine = Engine::start(&model, &options(4, 256)).expect("starts");
        let free = ask(&engine, &prompt(9, 30), &seeded(60, 5)).expect("taken");
        let of_remainder = |remainder: u32, left: usize| {
            let request = EngineRequest::new(prompt(remainder, 40), greedy(70));
            let constraint: Box<dyn TokenConstraint> = Box::new(EveryThird { remainder, left });
            let constraint = Some(constraint);
            ask_for(&engine, EngineRequest { constraint, ..request }).expect("taken")
        };
        let constrained = [(0, 50), (1, 9), (2, 90)].map(|(r, left)| (r, left, of_remainder(r, left)));
        let stuck = of_remainder(1, 100);
        for (remainder, left, asked) in constrained {
            let (tokens, finish) = asked.answer();
            let (length, expected) = if left > 70 {
                (70, Finish::Length)
            } else {
                (left, Finish::Stop)
            };
            assert_eq!((tokens.len(), finish), (length, expected), "{remainder}");
            let start = prompt(remainder, 40);
            let all = log_probabilities(&reference, &[&start[..], &tokens].concat());
            for (token, row) in tokens.iter().zip(&all[start.len() - 1..]) {
                let allowed = (remainder as usize..row.len()).step_by(3).map(|id| row[id]);
                let most = allowed.fold(f64::NEG_INFINITY, f64::max);
                assert!(most - row[*token as usize] < 1e-3, "{token} is not the likeliest");
            }
        }
        assert!(matches!(stuck.next(), EngineEvent::Failed(Error::Constraint(why)) if why.contains("no way on")));
        assert_eq!(free.answer().0, alone(&model, 256, &prompt(9, 30), &seeded(60, 5)));
    }
    gpu.assert_silent();
}

#[test]
fn deterministic_engines_compute_the_same_bits_whoever_else_is_there() {
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("qwen3-gguf-q4_0/model.gguf", device);
        let options = EngineOptions {
            deterministic: true,
            ..options(3, 512)
        };
        let asked = |engine: &Engine, number: u32| {
            let request = EngineRequest::new(prompt(number, 20 + 45 * number), seeded(40, u64::from(number)));
            let likeliest = Some(3);
            ask_for(engine, EngineRequest { likeliest, ..request }).expect("taken")
        };
        let together = Engine::start(&model, &options).expect("starts");
        let all: Vec<Asked> = (0..5).map(|number| asked(&together, number % 4)).collect();
        for (number, answer) in all.into_iter().enumerate() {
            let alone = Engine::start(&model, &options).expect("starts");
            let number = number as u32 % 4;
            assert_eq!(answer.picked(), asked(&alone, number).picked(), "request {number}");
        }
    }
    gpu.assert_silent();
}

#[test]
fn clients_take_turns_where_requests_wait() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(1, 256)).expect("starts");
    let (ended, order) = channel();
    let ask = |client: u64, number: u32| {
        let request = EngineRequest::new(prompt(number, 3), greedy(40));
        let ended = ended.clone();
        let listener = Box::new(move |event| {
            if matches!(event, EngineEvent::End(_)) {
                let _ = ended.send(client);
            }
        });
        engine
            .submit(EngineRequest { client, ..request }, listener)
            .expect("taken")
    };
    let tickets: Vec<EngineTicket> = (0..5).map(|number| ask(7, number)).chain([ask(8, 9)]).collect();
    let order: Vec<u64> = tickets
        .iter()
        .map(|_| order.recv_timeout(LONGEST_WAIT).expect("ends"))
        .collect();
    let place = order.iter().position(|client| *client == 8).expect("there");
    assert!(
        place <= 2,
        "who came last waits for one of the other's at most: {order:?}"
    );
}
