//! Texts on whether a model fits a device, and how fast it can be.

use refrain_engine::fit::{Fit, Limit};

use crate::output::{about_rate, human_bytes};

/// Whether the weights and some context fit in memory.
pub(crate) fn room(fit: &Fit) -> String {
    match (fit.capacity.free, fit.context()) {
        (Some(free), Some(0)) => format!(
            "{} free: the weights ({}) do not fit",
            human_bytes(free),
            human_bytes(fit.requirements.weights)
        ),
        (Some(free), Some(context)) => {
            format!(
                "{} free: fits the weights and {context} tokens of context",
                human_bytes(free)
            )
        }
        _ => "unknown".to_owned(),
    }
}

/// Expected speed at a context depth in tokens, and its bottleneck.
pub(crate) fn speed(fit: &Fit, depth: usize) -> String {
    let limit = match fit.limit(depth) {
        Limit::Weights => format!("reading {} of weights", human_bytes(fit.requirements.weights_per_token)),
        Limit::Cache => {
            let bytes = depth as u64 * fit.requirements.kv_per_position;
            format!("reading {} of KV cache", human_bytes(bytes))
        }
        Limit::Steps => format!(
            "about {} dependent steps of {:.1} µs each",
            fit.steps(),
            1e6 * fit.capacity.step_seconds
        ),
    };
    format!(
        "up to about {} tokens/s at {depth} tokens; bottleneck: {limit}",
        about_rate(fit.expected(depth))
    )
}

#[cfg(test)]
mod tests {
    use refrain_engine::fit::{Capacity, Requirements};

    use super::*;

    #[test]
    fn describes_memory_and_bottleneck() {
        let requirements = Requirements {
            weights: 5 << 30,
            weights_per_token: 4 << 30,
            kv_per_position: 1 << 17,
            layers: 32,
            max_context: 40_960,
        };
        let capacity = Capacity {
            free: Some(4 << 30),
            bandwidth: (4u64 << 40) as f64,
            step_seconds: 1e-4,
        };
        let mut fit = Fit { requirements, capacity };
        assert!(room(&fit).contains("do not fit"));
        assert!(speed(&fit, 0).contains("224 dependent steps"));
        fit.capacity.free = Some(8 << 30);
        fit.capacity.step_seconds = 0.0;
        assert!(room(&fit).contains("24576 tokens of context"));
        assert!(
            speed(&fit, 0).starts_with("up to about 1000 tokens/s at 0 tokens; bottleneck: reading 4.0 GiB of weights"),
            "{}",
            speed(&fit, 0)
        );
    }
}
