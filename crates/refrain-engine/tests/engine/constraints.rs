//! Requests with token constraints, beside requests without.

use refrain_engine::{Device, Engine, EngineEvent, EngineRequest, Error, Finish, TokenConstraint};

use super::common::{TestGpu, model};
use super::{alone, ask, ask_for, greedy, log_probabilities, options, prompt, seeded};

/// Allows only tokens of one remainder, and ends after a number of tokens.
struct EveryThird {
    remainder: u32,
    left: usize,
}

impl TokenConstraint for EveryThird {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        let allowed = (0..32 * bits.len() as u32).filter(|id| id % 3 == self.remainder);
        allowed.for_each(|id| bits[id as usize / 32] |= 1 << (id % 32));
        match self.left {
            100.. => Err("no continuation".to_owned()),
            _ => Ok(()),
        }
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        assert_eq!(token % 3, self.remainder);
        self.left -= 1;
        Ok(self.left == 0)
    }
}

#[test]
fn constraints_pick_the_best_allowed_tokens_and_leave_other_requests_unchanged() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    let reference = model("llama-f32", &Device::cpu());
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("llama-f32", device);
        // The last request finds no page at first, and is preempted later.
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
        for (remainder, left, submitted) in constrained {
            let (tokens, finish) = submitted.answer();
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
                assert!(most - row[*token as usize] < 1e-3, "{token} is not the most likely");
            }
        }
        assert!(matches!(stuck.next(), EngineEvent::Failed(Error::Constraint(why)) if why.contains("no continuation")));
        assert_eq!(free.answer().0, alone(&model, 256, &prompt(9, 30), &seeded(60, 5)));
    }
    gpu.assert_silent();
}

/// Restricts only some tokens of an answer, to those of remainder 1.
struct InBetween {
    restricted: std::ops::Range<usize>,
    taken: usize,
}

impl TokenConstraint for InBetween {
    fn restricts(&self) -> bool {
        self.restricted.contains(&self.taken)
    }

    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        if !self.restricts() {
            bits.fill(u32::MAX);
            return Ok(());
        }
        let allowed = (0..32 * bits.len() as u32).filter(|id| id % 3 == 1);
        allowed.for_each(|id| bits[id as usize / 32] |= 1 << (id % 32));
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        assert!(
            !self.restricts() || token % 3 == 1,
            "{token} was sampled without the constraint"
        );
        self.taken += 1;
        Ok(false)
    }
}

#[test]
fn a_constraint_that_begins_in_the_middle_holds_from_its_first_token_on() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for name in ["llama-f32", "qwen3.5-bf16"] {
        let reference = model(name, &Device::cpu());
        for device in [&Device::cpu(), &gpu.device] {
            let engine = Engine::start(&model(name, device), &options(4, 1024)).expect("starts");
            let start = prompt(4, 40);
            let submitted = [20..26, 0..3, 30..31, 200..201].map(|restricted| {
                let constraint: Box<dyn TokenConstraint> = Box::new(InBetween {
                    restricted: restricted.clone(),
                    taken: 0,
                });
                let request = EngineRequest {
                    constraint: Some(constraint),
                    ..EngineRequest::new(start.clone(), greedy(60))
                };
                (restricted, ask_for(&engine, request).expect("taken"))
            });
            for (restricted, submitted) in submitted {
                let (tokens, finish) = submitted.answer();
                assert_eq!((tokens.len(), finish), (60, Finish::Length), "{name} {restricted:?}");
                let all = log_probabilities(&reference, &[&start[..], &tokens].concat());
                for (at, (token, row)) in tokens.iter().zip(&all[start.len() - 1..]).enumerate() {
                    let is_allowed = |id: usize| !restricted.contains(&at) || id % 3 == 1;
                    let allowed = (0..row.len()).filter(|id| is_allowed(*id)).map(|id| row[id]);
                    let most = allowed.fold(f64::NEG_INFINITY, f64::max);
                    let missing = most - row[*token as usize];
                    assert!(
                        missing < 2e-2,
                        "{name} {restricted:?}: {token} at {at} misses {missing}"
                    );
                }
            }
        }
    }
    gpu.assert_silent();
}

/// Allows no token.
struct Nothing;

impl TokenConstraint for Nothing {
    fn fill_mask(&mut self, _bits: &mut [u32]) -> Result<(), String> {
        Ok(())
    }

    fn accept(&mut self, _token: u32) -> Result<bool, String> {
        unreachable!("nothing is allowed")
    }
}

#[test]
fn a_constraint_that_allows_nothing_fails_its_request_alone() {
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let engine = Engine::start(&model, &options(1, 256)).expect("starts");
        let text = prompt(1, 30);
        let free = alone(&model, 256, &text, &greedy(12));
        // The same slot is used by both.
        for _ in 0..2 {
            let request = EngineRequest {
                constraint: Some(Box::new(Nothing)),
                ..EngineRequest::new(text.clone(), greedy(12))
            };
            let stuck = ask_for(&engine, request).expect("taken");
            assert!(matches!(stuck.next(), EngineEvent::Failed(Error::Constraint(why)) if why.contains("no token")));
            assert_eq!(
                ask(&engine, &text, &greedy(12)).expect("taken").answer().0,
                free,
                "{name}"
            );
        }
    }
}
