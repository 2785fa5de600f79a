//! How measurements are told.

use serde_json::{Value, json};

use super::{Measurements, Repetition};
use crate::device;
use crate::output::{human_bytes, human_rate, human_seconds};

impl Measurements<'_> {
    fn fastest(&self, time: impl Fn(&Repetition) -> f64) -> f64 {
        self.repetitions.iter().map(time).fold(f64::INFINITY, f64::min)
    }

    fn prompt_rate(&self) -> f64 {
        f64::from(self.arguments.prompt) / self.fastest(|repetition| repetition.prompt)
    }

    /// Seconds per decoded token.
    fn per_token(&self) -> f64 {
        self.fastest(|repetition| repetition.decode) / self.decoded()
    }

    /// Tokens after the first.
    fn decoded(&self) -> f64 {
        f64::from(self.arguments.generate - 1)
    }

    /// Which part of the probe's bandwidth decoding makes use of.
    fn share(&self) -> f64 {
        self.read_per_token as f64 / self.per_token() / self.bandwidth
    }

    /// What the device does for one token: names and numbers.
    fn per_token_counters(&self) -> Vec<(&'static str, f64)> {
        let Some(last) = self.repetitions.last().filter(|_| !self.loaded.model.device().is_cpu()) else {
            return Vec::new();
        };
        let counters = &last.counters;
        [
            ("submits", counters.submits),
            ("dispatches", counters.dispatches),
            ("barriers", counters.barriers),
            ("transfer_submits", counters.transfer_submits),
            ("copies", counters.copies),
            ("waits", counters.waits),
            ("allocations", counters.allocations),
            ("bytes_staged", counters.bytes_staged),
            ("record_cpu_us", counters.record_cpu_ns / 1000),
        ]
        .map(|(name, count)| (name, count as f64 / self.decoded()))
        .to_vec()
    }
}

/// For people, a figure a line.
pub(super) fn text(measured: &Measurements<'_>) -> String {
    let loaded = measured.loaded;
    let gigabytes = |rate: f64| format!("{:.2} GB/s", rate / 1e9);
    let mut lines = vec![
        ("model", measured.arguments.model.clone()),
        ("device", device::describe(loaded.model.device())),
        (
            "load",
            format!(
                "{} of weights in {}, {}",
                human_bytes(loaded.model.weight_bytes()),
                human_seconds(loaded.time.as_secs_f64()),
                gigabytes(loaded.bytes_per_second()),
            ),
        ),
        (
            "prompt",
            format!(
                "{} tokens, {} tokens/s",
                measured.arguments.prompt,
                human_rate(measured.prompt_rate())
            ),
        ),
        (
            "decode",
            format!(
                "{} tokens, {} tokens/s ({} a token)",
                measured.arguments.generate,
                human_rate(1.0 / measured.per_token()),
                human_seconds(measured.per_token()),
            ),
        ),
        (
            "bandwidth",
            format!(
                "{} read by a probe; decoding reads {} a token, {:.0} % of it",
                gigabytes(measured.bandwidth),
                human_bytes(measured.read_per_token),
                100.0 * measured.share(),
            ),
        ),
        ("memory", measured.memory.line()),
    ];
    let counters = measured.per_token_counters();
    if !counters.is_empty() {
        let counts = counters.iter().map(|(name, count)| format!("{name} {count:.1}"));
        lines.push(("a token", counts.collect::<Vec<_>>().join(", ")));
    }
    lines
        .iter()
        .map(|(name, value)| format!("{name:<10} {value}\n"))
        .collect()
}

/// For machines.
pub(super) fn json(measured: &Measurements<'_>) -> Value {
    let loaded = measured.loaded;
    let vulkan = loaded.model.device().as_vulkan();
    let counters: serde_json::Map<String, Value> = measured
        .per_token_counters()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    json!({
        "model": measured.arguments.model,
        "device": loaded.model.device().name(),
        "driver": vulkan.map(|v| format!("{} {}", v.info().driver_name, v.info().driver_info)),
        "load": {
            "weight_bytes": loaded.model.weight_bytes(),
            "seconds": loaded.time.as_secs_f64(),
            "gb_per_s": loaded.bytes_per_second() / 1e9,
        },
        "prompt": {
            "tokens": measured.arguments.prompt,
            "tokens_per_s": measured.prompt_rate(),
            "seconds": measured.repetitions.iter().map(|r| r.prompt).collect::<Vec<_>>(),
        },
        "decode": {
            "tokens": measured.arguments.generate,
            "tokens_per_s": 1.0 / measured.per_token(),
            "ms_per_token": 1e3 * measured.per_token(),
            "seconds": measured.repetitions.iter().map(|r| r.decode).collect::<Vec<_>>(),
            "per_token": counters,
        },
        "bandwidth": {
            "probe_gb_per_s": measured.bandwidth / 1e9,
            "read_bytes_per_token": measured.read_per_token,
            "share": measured.share(),
        },
        "memory": measured.memory.json(),
    })
}
