//! Histograms of request times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Counts of durations, by buckets.
#[derive(Default)]
pub(crate) struct Histogram {
    /// One count for each bucket, and one above the last bound.
    counts: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

impl Histogram {
    pub fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns lines of Prometheus' text format, each with `label`.
    pub fn lines(&self, name: &str, label: &str) -> String {
        let mut count = 0;
        let mut text = String::new();
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, here) in bounds.zip(&self.counts) {
            count += here.load(Ordering::Relaxed);
            text.push_str(&format!("{name}_bucket{{{label},le=\"{bound}\"}} {count}\n"));
        }
        let seconds = self.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        text.push_str(&format!(
            "{name}_sum{{{label}}} {seconds}\n{name}_count{{{label}}} {count}\n"
        ));
        text
    }
}

/// Request times of a model.
#[derive(Default)]
pub(crate) struct RequestTimes {
    /// Time from a request to its first token.
    pub first_token: Histogram,
    /// Time from a request to its end.
    pub whole: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_include_their_bounds() {
        let histogram = Histogram::default();
        for milliseconds in [10, 11, 700, 100_000] {
            histogram.add(Duration::from_millis(milliseconds));
        }
        let lines = histogram.lines("t", "m=\"a\"");
        for line in [
            "t_bucket{m=\"a\",le=\"0.01\"} 1",
            "t_bucket{m=\"a\",le=\"0.025\"} 2",
            "t_bucket{m=\"a\",le=\"1\"} 3",
            "t_bucket{m=\"a\",le=\"60\"} 3",
            "t_bucket{m=\"a\",le=\"+Inf\"} 4",
            "t_sum{m=\"a\"} 100.721",
            "t_count{m=\"a\"} 4",
        ] {
            assert!(lines.lines().any(|found| found == line), "{line} in\n{lines}");
        }
    }
}
