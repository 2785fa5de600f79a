//! What a token, or a prompt, costs a device: counted from its plan.
//!
//! ```no_run
//! use refrain_engine::cost::{Remembered, TokenCost};
//! use refrain_engine::{Device, LoadOptions, Model, Session};
//! use refrain_models::Checkpoint;
//!
//! let device = Device::auto()?;
//! let model = Model::load(&Checkpoint::open("Qwen3-0.6B".as_ref())?, &device, &LoadOptions::default())?;
//! let mut session = Session::new(&model, 1024)?;
//! let cost = TokenCost::of(session.decode_function()?.plan(), Remembered { sequences: 1, depth: 1000 });
//! let floor = cost.floor_seconds(refrain::speed::read_bandwidth(&device)?);
//! println!("{} dispatches, at least {:.3} ms", cost.dispatches, 1e3 * floor);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;

use refrain::plan::{Plan, Step};
use refrain_lm::sample::Settings;

use crate::{Error, Session};

/// Runs that a profile is the best of.
const RUNS: usize = 20;

/// What is there already when a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Sequences that its tokens belong to.
    pub sequences: usize,
    /// Positions of each.
    pub depth: usize,
}

impl Remembered {
    /// Bytes of keys and values that a step reads.
    pub fn bytes(&self, step: &Step) -> u64 {
        self.sequences as u64 * step.cache_bytes(self.depth)
    }
}

/// What one run of a decode step, or of a prompt's chunk, takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCost {
    /// Dispatches.
    pub dispatches: usize,
    /// Groups of steps that wait for each other.
    pub levels: usize,
    /// Barriers, those at the ends of a recording included.
    pub barriers: usize,
    /// Arguments that the host writes for each run.
    pub transfers: usize,
    /// Steps that only move elements.
    pub copies: usize,
    /// Bytes of intermediate results.
    pub arena_bytes: u64,
    /// The most bytes of results that are needed at once.
    pub least_arena_bytes: u64,
    /// Bytes of weights that are read.
    pub weight_bytes: u64,
    /// Bytes of keys and values that are read.
    pub kv_bytes: u64,
    /// Multiplications, about; attention as over a full context.
    pub multiplications: u64,
}

impl TokenCost {
    /// Of a program with so much before it.
    pub fn of(plan: &Plan, remembered: Remembered) -> TokenCost {
        let waits = plan.barriers_before_steps().into_iter().filter(|&waits| waits);
        TokenCost {
            dispatches: plan.dispatches(),
            levels: 1 + waits.count(),
            // The recording begins with one, and ends with one that lets the host read.
            barriers: plan.barriers() + 2,
            transfers: plan.inputs.len(),
            copies: plan.steps.iter().filter(|step| step.primitive.is_copy()).count(),
            arena_bytes: plan.scratch_bytes,
            least_arena_bytes: plan.least_scratch_bytes,
            weight_bytes: plan.steps.iter().map(|step| plan.weight_bytes(step)).sum(),
            kv_bytes: plan.steps.iter().map(|step| remembered.bytes(step)).sum(),
            multiplications: plan.steps.iter().map(Step::multiplications).sum(),
        }
    }

    /// Seconds that a token takes at least where that many bytes are read per second: those of reading weights, keys
    /// and values.
    pub fn floor_seconds(&self, bandwidth: f64) -> f64 {
        (self.weight_bytes + self.kv_bytes) as f64 / bandwidth
    }
}

/// Seconds that a step of a plan takes at least: those of reading its weights, and keys and values, at so many bytes per
/// second.
pub fn step_floor_seconds(plan: &Plan, step: &Step, remembered: Remembered, bandwidth: f64) -> f64 {
    (plan.weight_bytes(step) + remembered.bytes(step)) as f64 / bandwidth
}

/// Steps that stand for themselves although regions exist for such as them, and how many: what fits no pattern.
pub fn unfused(plan: &Plan) -> BTreeMap<&'static str, usize> {
    const JOINED: [&str; 7] = [
        "matmul",
        "quant_matmul",
        "rms_norm",
        "rope",
        "write_rows",
        "paged_attention",
        "elementwise",
    ];
    let mut counts = BTreeMap::new();
    for step in plan.steps.iter().filter(|step| JOINED.contains(&step.primitive.name())) {
        *counts.entry(step.primitive.name()).or_insert(0) += 1;
    }
    counts
}

impl Session {
    /// Microseconds of each step of the decode step's plan with `depth` tokens before it: the least of several runs.
    /// For a session that holds nothing yet.
    ///
    /// # Errors
    /// As [`Session::profile`]; a context too short for that.
    pub fn profile_at(&mut self, depth: usize) -> Result<Vec<f64>, Error> {
        self.feed(&vec![1; depth.max(1)])?;
        let mut stream = self.stream(&[1], &Settings::default())?;
        for _ in 0..8 {
            stream.next_tokens()?;
        }
        stream.end()?;
        least_of_runs(|| self.profile())
    }

    /// The same of [`Session::prefill_function`]'s plan for so many tokens, at most 512, with `depth` before them.
    ///
    /// # Errors
    /// As [`Session::profile_at`].
    pub fn profile_prompt(&mut self, tokens: usize, depth: usize) -> Result<Vec<f64>, Error> {
        self.feed(&vec![1; depth])?;
        self.prefill(&vec![1; tokens])?;
        let function = self.prefill_function(tokens)?;
        least_of_runs(|| Ok(function.profile()?))
    }
}

/// Of each step the least of what several runs took.
fn least_of_runs(mut profile: impl FnMut() -> Result<Vec<f64>, Error>) -> Result<Vec<f64>, Error> {
    let mut least = profile()?;
    for _ in 1..RUNS {
        for (least, us) in least.iter_mut().zip(profile()?) {
            *least = least.min(us);
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use refrain_models::Checkpoint;
    use refrain_vulkan::DeviceInfo;

    use super::*;
    use crate::{Device, LoadOptions, Model};

    #[test]
    fn a_token_costs_its_weights_and_what_it_remembers() {
        let info = DeviceInfo::made_up("card");
        let device = Device::vulkan(refrain_vulkan::Device::null_without_contents(info));
        let checkpoint = Checkpoint::synthetic("tiny:q4_0").expect("a checkpoint");
        let model = Model::load(&checkpoint, &device, &LoadOptions::default()).expect("loads");
        let mut session = Session::new(&model, 256).expect("fits");
        let plan = session.decode_function().expect("lowers").plan();
        let [shallow, deep] = [0, 200].map(|depth| TokenCost::of(plan, Remembered { sequences: 1, depth }));
        assert_eq!((shallow.kv_bytes, shallow.copies, shallow.transfers), (0, 0, 0));
        assert_eq!(
            deep.kv_bytes,
            200 * Session::kv_bytes_per_token(model.config(), &device)
        );
        assert!(shallow.weight_bytes > 0 && shallow.weight_bytes <= model.weight_bytes());
        let bytes = (deep.weight_bytes + deep.kv_bytes) as f64;
        assert_eq!(deep.floor_seconds(bytes), 1.0);
        let deepest = Remembered {
            sequences: 1,
            depth: 200,
        };
        let steps = plan.steps.iter();
        let steps = steps.map(|step| step_floor_seconds(plan, step, deepest, bytes));
        assert!((steps.sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(deep.levels <= deep.barriers && deep.barriers <= deep.dispatches + 2);
    }
}
