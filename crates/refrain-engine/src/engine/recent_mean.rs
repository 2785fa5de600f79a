//! Means of measured times, in which recent ones count most.

use std::time::Duration;

/// Weight of the newest time.
const NEWEST_WEIGHT: f64 = 0.25;

/// Returns the mean after `newest` was measured; `mean` is the one before, `None` at first.
pub(super) fn recent_mean(mean: Option<Duration>, newest: Duration) -> Duration {
    mean.map_or(newest, |mean| {
        mean.mul_f64(1.0 - NEWEST_WEIGHT) + newest.mul_f64(NEWEST_WEIGHT)
    })
}
