//! What a token costs, and how far its steps are from the time that reading their bytes takes.

use refrain::Function;
use refrain::plan::{Plan, Step};
use refrain::sample::Settings;
use refrain_engine::Session;
use serde_json::{Value, json};

use crate::output::human_bytes;

/// Runs that a profile is the best of.
const RUNS: usize = 20;
/// Steps that the table names.
const SHOWN: usize = 12;

/// Figures of one token.
pub(super) struct Summary {
    layers: usize,
    dispatches: usize,
    levels: usize,
    barriers: usize,
    /// Arguments that the host writes for each run.
    transfers: usize,
    /// Steps that only move elements.
    copies: usize,
    arena_bytes: u64,
    least_arena_bytes: u64,
    weight_bytes: u64,
    kv_bytes: u64,
    /// Bytes per second.
    bandwidth: f64,
}

impl Summary {
    pub fn of(function: &Function, layers: usize, depth: usize, bandwidth: f64) -> Summary {
        let plan = function.plan();
        Summary {
            layers,
            dispatches: plan.dispatches(),
            levels: 1 + plan
                .barriers_before_steps()
                .into_iter()
                .filter(|&barrier| barrier)
                .count(),
            // The recording begins with one, and ends with one that lets the host read.
            barriers: plan.barriers() + 2,
            transfers: plan.inputs.len(),
            copies: plan.steps.iter().filter(|step| step.primitive.is_copy()).count(),
            arena_bytes: plan.scratch_bytes,
            least_arena_bytes: plan.least_scratch_bytes,
            weight_bytes: function.weight_bytes(),
            kv_bytes: plan.steps.iter().map(|step| step.cache_bytes(depth)).sum(),
            bandwidth,
        }
    }

    fn floor_ms(&self) -> f64 {
        (self.weight_bytes + self.kv_bytes) as f64 / self.bandwidth * 1e3
    }

    pub fn text(&self) -> String {
        let per_layer = |count: usize| count as f64 / self.layers.max(1) as f64;
        let mut text = format!(
            "token      {} dispatches ({:.1} a layer), {} levels, {} barriers ({:.1} a layer), {} transfers, {} copies\n",
            self.dispatches,
            per_layer(self.dispatches),
            self.levels,
            self.barriers,
            per_layer(self.barriers),
            self.transfers,
            self.copies,
        );
        text.push_str(&format!(
            "submits    one call for as many tokens as it decodes\nmemory     arena {} (results alive at once: {}), weights read {}, keys and values read {}\n",
            human_bytes(self.arena_bytes),
            human_bytes(self.least_arena_bytes),
            human_bytes(self.weight_bytes),
            human_bytes(self.kv_bytes),
        ));
        let (floor, speed) = (self.floor_ms(), self.bandwidth / 1e9);
        text.push_str(&format!("floor      {floor:.3} ms at {speed:.0} GB/s\n"));
        text
    }

    pub fn json(&self) -> Value {
        json!({
            "dispatches": self.dispatches,
            "levels": self.levels,
            "barriers": self.barriers,
            "transfers": self.transfers,
            "copies": self.copies,
            "arena_bytes": self.arena_bytes,
            "least_arena_bytes": self.least_arena_bytes,
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.kv_bytes,
            "floor_ms": self.floor_ms(),
            "read_gbps": self.bandwidth / 1e9,
        })
    }
}

/// Steps that stand for themselves although regions exist for such as them: what fits no pattern.
pub(super) fn unfused(plan: &Plan) -> Vec<String> {
    const JOINED: [&str; 7] = [
        "matmul",
        "quant_matmul",
        "rms_norm",
        "rope",
        "write_rows",
        "paged_attention",
        "elementwise",
    ];
    let mut counts = std::collections::BTreeMap::new();
    for step in plan.steps.iter().filter(|step| JOINED.contains(&step.primitive.name())) {
        *counts.entry(step.primitive.name()).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .map(|(name, count)| format!("{count} × {name}"))
        .collect()
}

/// Microseconds of each step: the least of several runs, with `depth` tokens in the context.
pub(super) fn profile(session: &mut Session, depth: usize) -> anyhow::Result<Vec<f64>> {
    session.feed(&vec![1; depth.max(1)])?;
    let mut stream = session.stream(&[1], &Settings::default())?;
    for _ in 0..8 {
        stream.next_tokens()?;
    }
    stream.end()?;
    let mut least = session.profile()?;
    for _ in 1..RUNS {
        for (least, us) in least.iter_mut().zip(session.profile()?) {
            *least = least.min(us);
        }
    }
    Ok(least)
}

/// What reading a step's weights, and the keys and values of `depth` positions, takes.
fn floor_us(plan: &Plan, step: &Step, depth: usize, bandwidth: f64) -> f64 {
    (plan.weight_bytes(step) + step.cache_bytes(depth)) as f64 / bandwidth * 1e6
}

/// The steps that lose most time against reading their weights, keys and values.
pub(super) fn table(plan: &Plan, profile: &[f64], depth: usize, bandwidth: f64) -> String {
    let mut steps: Vec<(usize, f64, f64)> = plan
        .steps
        .iter()
        .zip(profile)
        .enumerate()
        .map(|(number, (step, &us))| (number, us, floor_us(plan, step, depth, bandwidth)))
        .collect();
    let total: f64 = profile.iter().sum();
    steps.sort_by(|a, b| (b.1 - b.2).total_cmp(&(a.1 - a.2)));
    let mut text = format!(
        "profile    {:.1} µs over {} steps, each timed with a barrier; furthest from their floor:\n",
        total,
        profile.len()
    );
    for (number, us, floor) in steps.into_iter().take(SHOWN) {
        let step = &plan.steps[number];
        text.push_str(&format!(
            "  {number:4} {us:8.1} µs, floor {floor:7.1}  {}\n",
            step.primitive
        ));
    }
    text
}

/// All steps, for machines.
pub(super) fn json(plan: &Plan, profile: &[f64], depth: usize, bandwidth: f64) -> Value {
    let step = |(number, (step, us)): (usize, (&Step, &f64))| {
        json!({
            "step": number,
            "primitive": step.primitive.to_string(),
            "us": us,
            "floor_us": floor_us(plan, step, depth, bandwidth),
            "weight_bytes": plan.weight_bytes(step),
            "kv_bytes": step.cache_bytes(depth),
        })
    };
    plan.steps.iter().zip(profile).enumerate().map(step).collect()
}
