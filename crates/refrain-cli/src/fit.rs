//! What fits and how fast it can be, for people.

use refrain_engine::fit::{Fit, Limit};

use crate::output::{about_rate, human_bytes};

/// Whether there is room for the weights and some context.
pub(crate) fn room(fit: &Fit) -> String {
    match (fit.offer.free, fit.context()) {
        (Some(free), Some(0)) => format!(
            "{} free: the weights ({}) do not fit",
            human_bytes(free),
            human_bytes(fit.needs.weights)
        ),
        (Some(free), Some(context)) => {
            format!("{} free: room for the weights and {context} tokens", human_bytes(free))
        }
        _ => "unknown".to_owned(),
    }
}

/// The speed to expect at a depth, and what limits it.
pub(crate) fn speed(fit: &Fit, depth: usize) -> String {
    let limit = match fit.limit(depth) {
        Limit::Weights => format!("reading {} of weights", human_bytes(fit.needs.weights_per_token)),
        Limit::Cache => {
            let bytes = depth as u64 * fit.needs.kv_per_position;
            format!("reading {} of keys and values", human_bytes(bytes))
        }
        Limit::Steps => format!(
            "about {} steps that wait for each other, {:.1} µs each",
            fit.steps(),
            1e6 * fit.offer.step_seconds
        ),
    };
    format!(
        "up to about {} tokens/s at {depth} tokens; {limit} takes most of a token's time",
        about_rate(fit.expected(depth))
    )
}

#[cfg(test)]
mod tests {
    use refrain_engine::fit::{Needs, Offer};

    use super::*;

    #[test]
    fn room_and_limit_are_told_in_words() {
        let needs = Needs {
            weights: 5 << 30,
            weights_per_token: 4 << 30,
            kv_per_position: 1 << 17,
            layers: 32,
            max_context: 40_960,
        };
        let offer = Offer {
            free: Some(4 << 30),
            bandwidth: (4u64 << 40) as f64,
            step_seconds: 1e-4,
        };
        let mut fit = Fit { needs, offer };
        assert!(room(&fit).contains("do not fit"));
        assert!(speed(&fit, 0).contains("224 steps"));
        fit.offer.free = Some(8 << 30);
        fit.offer.step_seconds = 0.0;
        assert!(room(&fit).contains("24576 tokens"));
        assert!(
            speed(&fit, 0).starts_with("up to about 1000 tokens/s at 0 tokens; reading 4.0 GiB of weights"),
            "{}",
            speed(&fit, 0)
        );
    }
}
