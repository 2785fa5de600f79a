//! Constrained generation by a session.

mod common;

use common::TestGpu;
use refrain_engine::{Device, Error, Finish, GenerateOptions, LoadOptions, Model, Session, TokenConstraint};
use refrain_models::Checkpoint;

/// The n-th token must be n modulo this.
const MODULUS: u32 = 5;

struct ByRemainder {
    taken: u32,
    limit: u32,
}

impl ByRemainder {
    fn of(limit: u32) -> Box<dyn TokenConstraint> {
        Box::new(ByRemainder { taken: 0, limit })
    }
}

impl TokenConstraint for ByRemainder {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        assert!(bits.iter().all(|word| *word == 0));
        for id in (0..bits.len() as u32 * 32).filter(|id| id % MODULUS == self.taken % MODULUS) {
            bits[id as usize / 32] |= 1 << (id % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        assert_eq!(token % MODULUS, self.taken % MODULUS);
        self.taken += 1;
        Ok(self.taken == self.limit)
    }
}

/// Returns the most likely allowed tokens, from logits that are read back.
fn expected(session: &mut Session, prompt: &[u32], count: u32) -> Vec<u32> {
    let (mut tokens, mut logits) = (vec![], session.prefill(prompt).expect("computes"));
    for at in 0..count {
        let allowed = (0..logits.len()).filter(|id| *id as u32 % MODULUS == at % MODULUS);
        let best = allowed.max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("some") as u32;
        tokens.push(best);
        logits = session.extend_logits(&[best]).expect("computes");
    }
    tokens
}

fn check(device: &Device, spec: &str) {
    let checkpoint = Checkpoint::synthetic(spec).expect("a checkpoint");
    let model = Model::load(&checkpoint, device, &LoadOptions::default()).expect("loads");
    let (prompt, options) = ([3, 1, 4, 1, 5], GenerateOptions::default());
    let greedy = |tokens| GenerateOptions {
        max_tokens: Some(tokens),
        ..options.clone()
    };
    let mut session = Session::new(&model, 64).expect("fits");
    let free: Vec<u32> = session
        .generate(&prompt, &greedy(12))
        .expect("begins")
        .map(Result::unwrap)
        .collect();
    let expected = expected(&mut Session::new(&model, 64).expect("fits"), &prompt, 12);
    for _ in 0..2 {
        session.rewind(0);
        let mut tokens = session
            .generate_constrained(&prompt, &options, ByRemainder::of(12))
            .expect("begins");
        let picked: Vec<u32> = tokens.by_ref().map(Result::unwrap).collect();
        assert_eq!((&picked, tokens.finish()), (&expected, Some(Finish::Stop)), "{spec}");
        drop(tokens);
        assert_eq!(session.tokens().len(), prompt.len() + 12 - 1);
        session.rewind(0);
        let mut tokens = session
            .generate_constrained(&prompt, &greedy(7), ByRemainder::of(12))
            .expect("begins");
        assert_eq!(tokens.by_ref().count(), 7);
        assert_eq!(tokens.finish(), Some(Finish::Length));
        drop(tokens);
        // Without a constraint, the session is free again.
        session.rewind(0);
        let again: Vec<u32> = session
            .generate(&prompt, &greedy(12))
            .expect("begins")
            .map(Result::unwrap)
            .collect();
        assert_eq!(again, free, "{spec}");
    }
    struct Stuck;
    impl TokenConstraint for Stuck {
        fn fill_mask(&mut self, _: &mut [u32]) -> Result<(), String> {
            Ok(())
        }
        fn accept(&mut self, _: u32) -> Result<bool, String> {
            unreachable!("nothing is allowed")
        }
    }
    session.rewind(0);
    let mut tokens = session
        .generate_constrained(&prompt, &options, Box::new(Stuck))
        .expect("begins");
    assert!(matches!(tokens.next(), Some(Err(Error::Constraint(why))) if why.contains("no token")));
    assert!(tokens.next().is_none());
}

#[test]
fn sessions_sample_only_allowed_tokens() {
    for spec in ["tiny:f32", "tiny-hybrid:f32"] {
        check(&Device::cpu(), spec);
    }
}

#[test]
fn vulkan_sessions_sample_only_allowed_tokens() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    check(&gpu.device, "tiny:f32");
    gpu.assert_silent();
}

#[test]
fn prepared_sessions_trace_nothing_for_constrained_text() {
    let checkpoint = Checkpoint::synthetic("tiny:f32").expect("a checkpoint");
    let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads");
    let mut session = Session::new(&model, 64).expect("fits");
    let prompt = [3, 1, 4, 1, 5];
    session.prepare_constrained(prompt.len()).expect("prepares");
    let made = session.model_calls();
    let options = GenerateOptions::default();
    let tokens = session
        .generate_constrained(&prompt, &options, ByRemainder::of(12))
        .expect("begins");
    assert_eq!(tokens.map(Result::unwrap).count(), 12);
    assert_eq!(session.model_calls(), made);
}
