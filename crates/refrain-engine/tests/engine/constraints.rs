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
