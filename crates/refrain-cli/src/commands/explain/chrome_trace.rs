//! Exports a profile in the format of Chrome's trace viewer.

use refrain::plan::Plan;
use serde_json::json;

/// Lays out the steps one after another. Format: "Trace Event Format", complete events.
pub(super) fn events(plan: &Plan, profile: &[f64]) -> String {
    let mut start = 0.0;
    let events: Vec<_> = plan
        .steps
        .iter()
        .zip(profile)
        .enumerate()
        .map(|(number, (step, &us))| {
            let event = json!({
                "name": step.primitive.name(),
                "cat": "step",
                "ph": "X",
                "ts": start,
                "dur": us,
                "pid": 1,
                "tid": 1,
                "args": {
                    "step": number,
                    "primitive": step.primitive.to_string(),
                    "kernels": step.calls.iter().map(|call| call.kernel.name.to_string()).collect::<Vec<_>>(),
                },
            });
            start += us;
            event
        })
        .collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
}
