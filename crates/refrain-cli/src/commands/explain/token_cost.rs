//! The cost of a token or prompt, and the bandwidth limit of its steps.

use refrain::plan::{Plan, Step};
use refrain_engine::cost::{CachedTokens, TokenCost, step_floor_seconds};
use serde_json::{Value, json};

use crate::output::human_bytes;

/// The cost of one token or prompt, as text and JSON.
pub(super) struct CostSummary {
    /// "token" or "prompt".
    pub of: &'static str,
    pub cost: TokenCost,
    pub layers: usize,
    /// Bytes per second.
    pub bandwidth: f64,
}

impl CostSummary {
    fn floor_ms(&self) -> f64 {
        1e3 * self.cost.floor_seconds(self.bandwidth)
    }

    pub fn text(&self) -> String {
        let per_layer = |count: usize| count as f64 / self.layers.max(1) as f64;
        let mut text = format!(
            "{:<10} {} dispatches ({:.1} per layer), {} levels, {} barriers ({:.1} per layer), {} transfers, {} copies\n",
            self.of,
            self.cost.dispatches,
            per_layer(self.cost.dispatches),
            self.cost.levels,
            self.cost.barriers,
            per_layer(self.cost.barriers),
            self.cost.transfers,
            self.cost.copies,
        );
        text.push_str(&format!(
            "multiplies {:.3} billion\nmemory     arena {} (peak of live results {}), weights read {}, KV cache read {}\n",
            self.cost.multiplications as f64 / 1e9,
            human_bytes(self.cost.arena_bytes),
            human_bytes(self.cost.min_arena_bytes),
            human_bytes(self.cost.weight_bytes),
            human_bytes(self.cost.kv_bytes),
        ));
        let (floor, speed) = (self.floor_ms(), self.bandwidth / 1e9);
        text.push_str(&format!(
            "minimum    {floor:.3} ms to read these bytes at {speed:.0} GB/s\n"
        ));
        text
    }

    pub fn json(&self) -> Value {
        json!({
            "dispatches": self.cost.dispatches,
            "levels": self.cost.levels,
            "barriers": self.cost.barriers,
            "transfers": self.cost.transfers,
            "copies": self.cost.copies,
            "arena_bytes": self.cost.arena_bytes,
            "least_arena_bytes": self.cost.min_arena_bytes,
            "weight_bytes": self.cost.weight_bytes,
            "kv_bytes": self.cost.kv_bytes,
            "multiplications": self.cost.multiplications,
            "floor_ms": self.floor_ms(),
            "read_gbps": self.bandwidth / 1e9,
        })
    }
}

/// All steps as JSON.
pub(super) fn steps_json(plan: &Plan, profile: &[f64], cached: CachedTokens, bandwidth: f64) -> Value {
    let step = |(number, (step, us)): (usize, (&Step, &f64))| {
        json!({
            "step": number,
            "primitive": step.primitive.to_string(),
            "us": us,
            "floor_us": 1e6 * step_floor_seconds(plan, step, cached, bandwidth),
            "weight_bytes": plan.weight_bytes(step),
            "kv_bytes": cached.bytes(step),
            "multiplications": step.multiplications(),
        })
    };
    plan.steps.iter().zip(profile).enumerate().map(step).collect()
}
