//! The cost of a decode step or a prefill chunk, counted from its plan.
//!
//!
//! ```no_run
//! use refrain_engine::cost::{CachedTokens, TokenCost};
//! use refrain_engine::{Device, LoadOptions, Model, Programs};
//! use refrain_models::Checkpoint;
//!
//! let device = Device::auto()?;
//! let model = Model::load(&Checkpoint::open("Qwen3-0.6B".as_ref())?, &device, &LoadOptions::default())?;
//! let mut programs = Programs::new(&model, 1024, 1)?;
//! let cost = TokenCost::of(programs.decode_function()?.plan(), CachedTokens { sequences: 1, depth: 1000 });
//! let floor = cost.floor_seconds(refrain::speed::read_bandwidth(&device)?);
//! println!("{} dispatches, at least {:.3} ms", cost.dispatches, 1e3 * floor);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;

use refrain::plan::{Plan, Step};

use crate::{Error, Programs};

/// Number of runs of which a profile is the minimum.
const PROFILE_RUNS: usize = 20;

/// The contents of the KV cache before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedTokens {
    /// Number of sequences in the run.
    pub sequences: usize,
    /// Cached tokens of each sequence.
    pub depth: usize,
}

impl CachedTokens {
    /// Returns the bytes of keys and values that a step reads.
    pub fn bytes(&self, step: &Step) -> u64 {
        self.sequences as u64 * step.cache_bytes(self.depth)
    }
}

/// The cost of one run of a decode step or a prefill chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCost {
    /// Number of dispatches.
    pub dispatches: usize,
    /// Number of groups of steps that wait for each other.
    pub levels: usize,
    /// Number of barriers, including those at both ends of a recording.
    pub barriers: usize,
    /// Number of arguments that the host writes for each run.
    pub transfers: usize,
    /// Number of steps that only move elements.
    pub copies: usize,
    /// Bytes of intermediate results.
    pub arena_bytes: u64,
    /// Largest number of bytes of results that are live at once.
    pub min_arena_bytes: u64,
    /// Bytes of weights that are read.
    pub weight_bytes: u64,
    /// Bytes of keys and values that are read.
    pub kv_bytes: u64,
    /// Approximate number of multiplications, with attention over a full context.
    pub multiplications: u64,
}

impl TokenCost {
    /// Counts the cost of a program with these cached tokens.
    pub fn of(plan: &Plan, cached: CachedTokens) -> TokenCost {
        let waits = plan.barriers_before_steps().into_iter().filter(|&waits| waits);
        TokenCost {
            dispatches: plan.dispatches(),
            levels: 1 + waits.count(),
            // A recording begins with a barrier, and ends with one for the host.
            barriers: plan.barriers() + 2,
            transfers: plan.inputs.len(),
            copies: plan.steps.iter().filter(|step| step.primitive.is_copy()).count(),
            arena_bytes: plan.scratch_bytes,
            min_arena_bytes: plan.min_scratch_bytes,
            weight_bytes: plan.steps.iter().map(|step| plan.weight_bytes(step)).sum(),
            kv_bytes: plan.steps.iter().map(|step| cached.bytes(step)).sum(),
            multiplications: plan.steps.iter().map(Step::multiplications).sum(),
        }
    }

    /// Returns the minimal time in seconds at `bandwidth` bytes per second: that of reading weights, keys and
    /// values.
    pub fn floor_seconds(&self, bandwidth: f64) -> f64 {
        (self.weight_bytes + self.kv_bytes) as f64 / bandwidth
    }
}

/// Returns the minimal time in seconds of a step at `bandwidth` bytes per second: that of reading its weights, keys
/// and values.
pub fn step_floor_seconds(plan: &Plan, step: &Step, cached: CachedTokens, bandwidth: f64) -> f64 {
    (plan.weight_bytes(step) + cached.bytes(step)) as f64 / bandwidth
}

/// Counts the steps that match no fused pattern, by primitive.
pub fn unfused(plan: &Plan) -> BTreeMap<&'static str, usize> {
    const FUSIBLE: [&str; 7] = [
        "matmul",
        "quant_matmul",
        "rms_norm",
        "rope",
        "write_rows",
        "paged_attention",
        "elementwise",
    ];
    let mut counts = BTreeMap::new();
    for step in plan
        .steps
        .iter()
        .filter(|step| FUSIBLE.contains(&step.primitive.name()))
    {
        *counts.entry(step.primitive.name()).or_insert(0) += 1;
    }
    counts
}

impl Programs {
    /// Returns the microseconds of each step of the decode plan after `depth` tokens: the minimum of several runs. A plan
    /// that verifies drafts ([`Programs::verify_drafts`]) gets full ones.
    ///
    /// # Errors
    /// As [`Programs::decode_function`], or if the device has no timestamps.
    pub fn profile_step(&mut self, depth: usize) -> Result<Vec<f64>, Error> {
        min_of_runs(|| {
            // A run may advance by all of a draft.
            self.place(1, depth)?;
            let step = self.step()?;
            if let Some(drafts) = &step.control.drafts {
                drafts.fill(1)?;
            }
            Ok(step.profile()?)
        })
    }

    /// Returns the same for [`Programs::prefill_function`]'s plan of `tokens` tokens, after `depth` tokens.
    ///
    /// # Errors
    /// As [`Programs::profile_step`].
    pub fn profile_prompt(&mut self, tokens: usize, depth: usize) -> Result<Vec<f64>, Error> {
        self.prefill_chunk(&vec![1; tokens], depth, None, 1)?;
        let function = self.prefill_function(tokens)?;
        min_of_runs(|| Ok(function.profile()?))
    }
}

/// Returns the minimum of several runs for each step.
fn min_of_runs(mut profile: impl FnMut() -> Result<Vec<f64>, Error>) -> Result<Vec<f64>, Error> {
    let mut minimum = profile()?;
    for _ in 1..PROFILE_RUNS {
        for (minimum, us) in minimum.iter_mut().zip(profile()?) {
            *minimum = minimum.min(us);
        }
    }
    Ok(minimum)
}

#[cfg(test)]
mod tests {
    use refrain_models::Checkpoint;
    use refrain_vulkan::DeviceInfo;

    use super::*;
    use crate::{Device, LoadOptions, Model};

    #[test]
    fn counts_weights_and_cached_tokens() {
        let info = DeviceInfo::mock("card");
        let device = Device::vulkan(refrain_vulkan::Device::null_without_contents(info));
        let checkpoint = Checkpoint::synthetic("tiny:q4_0").expect("a checkpoint");
        let model = Model::load(&checkpoint, &device, &LoadOptions::default()).expect("loads");
        let mut programs = Programs::new(&model, 256, 1).expect("fits");
        let plan = programs.decode_function().expect("lowers").plan();
        let [shallow, deep] = [0, 200].map(|depth| TokenCost::of(plan, CachedTokens { sequences: 1, depth }));
        assert_eq!((shallow.kv_bytes, shallow.copies, shallow.transfers), (0, 0, 0));
        assert_eq!(deep.kv_bytes, 200 * model.cache_types().bytes_per_token(model.config()));
        assert!(shallow.weight_bytes > 0 && shallow.weight_bytes <= model.weight_bytes());
        let bytes = (deep.weight_bytes + deep.kv_bytes) as f64;
        assert_eq!(deep.floor_seconds(bytes), 1.0);
        let deepest = CachedTokens {
            sequences: 1,
            depth: 200,
        };
        let steps = plan.steps.iter();
        let steps = steps.map(|step| step_floor_seconds(plan, step, deepest, bytes));
        assert!((steps.sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(deep.levels <= deep.barriers && deep.barriers <= deep.dispatches + 2);
    }
}
