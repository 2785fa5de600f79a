//! A row of results: a model, a test and its measurements.

use refrain::Device;
use refrain_engine::Speculation;
use serde_json::{Map, Value, json};

use super::measure::Measurement;
use crate::version;

/// Returns a value of `--accept`.
pub(super) fn accept_text(speculation: Speculation) -> String {
    match speculation {
        Speculation::Synthetic { percent } => (f64::from(percent) / 100.0).to_string(),
        Speculation::Ngram => "ngram".to_owned(),
        Speculation::Model => "draft".to_owned(),
        Speculation::Mtp => "mtp".to_owned(),
        Speculation::Off => "off".to_owned(),
    }
}

/// One test of one model.
pub(super) struct BenchRow {
    pub model: String,
    pub arch: String,
    pub format: String,
    pub layers: usize,
    pub parameters: usize,
    /// Bytes of the weights.
    pub bytes: u64,
    pub measurement: Measurement,
}

impl BenchRow {
    /// All keys of the row. `bandwidth` is the measured read bandwidth in bytes per second.
    pub fn json(&self, device: &Device, bandwidth: f64) -> Map<String, Value> {
        let measurement = &self.measurement;
        let (test, counters) = (&measurement.test, &measurement.counters);
        let rates: Vec<f64> = measurement
            .seconds
            .iter()
            .map(|seconds| (measurement.steps * test.batch) as f64 / seconds)
            .collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        // A single run has no deviation.
        let deviation = (rates.len() > 1).then(|| {
            let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
            (squares / (rates.len() - 1) as f64).sqrt()
        });
        // The CPU executor submits nothing.
        let per_token = |count: u64| (!device.is_cpu()).then_some(count as f64 / test.tokens as f64);
        let percentile = |share: f64| {
            let last = measurement.intervals.len().checked_sub(1)?;
            measurement
                .intervals
                .get((last as f64 * share).round() as usize)
                .copied()
        };
        let vulkan = device.as_vulkan().map(|device| device.info());
        let steps_per_second = mean / test.batch as f64;
        let read = (measurement.weight_bytes + measurement.kv_bytes * test.batch as u64) as f64 * steps_per_second;
        let read = (measurement.weight_bytes > 0).then_some(read);
        let tokens = test.tokens * rates.len();
        let tokens_per_step = test
            .speculation
            .map(|_| tokens as f64 / measurement.model_calls.max(1) as f64);
        let row = json!({
            "model": self.model,
            "arch": self.arch,
            "format": self.format,
            "parameters": self.parameters,
            "weight_bytes": self.bytes,
            "device": device.name(),
            "driver": vulkan.map(|info| format!("{} {}", info.driver_name, info.driver_info)),
            "mode": measurement.mode,
            "test": test.name(),
            "depth": test.depth,
            "batch": test.batch,
            "accept": test.speculation.map(accept_text),
            "tokens_per_s": mean,
            "tokens_per_s_stddev": deviation,
            "ms_per_token": 1e3 / steps_per_second,
            "ms_per_token_p50": percentile(0.5),
            "ms_per_token_p99": percentile(0.99),
            "gpu_ms_per_token": measurement.gpu_ms_per_token,
            "host_us_per_token": measurement.host_us_per_token,
            "model_calls": measurement.model_calls,
            "tokens_per_step": tokens_per_step,
            "submits_per_token": per_token(counters.submits),
            "transfer_submits_per_token": per_token(counters.transfer_submits),
            "barriers_per_token": per_token(counters.barriers),
            "dispatches_per_token": per_token(counters.dispatches),
            "copies_per_token": per_token(counters.copies),
            "allocations_per_token": per_token(counters.allocations),
            "record_us_per_token": per_token(counters.record_cpu_ns).map(|ns| ns / 1e3),
            "waits_per_token": per_token(counters.waits),
            "weight_bytes_per_token": measurement.weight_bytes,
            "kv_bytes_per_token": measurement.kv_bytes,
            "arena_bytes": measurement.arena_bytes,
            "read_gbps": read.map(|read| read / 1e9),
            "probe_gbps": bandwidth / 1e9,
            "bandwidth_share": read.map(|read| read / bandwidth),
            "prepare_ms": measurement.prepare_ms,
            "ttft_cold_ms": measurement.ttft_cold_ms,
            "ttft_warm_ms": measurement.ttft_warm_ms,
            "layers": self.layers,
            "git": version::COMMIT,
        });
        match row {
            Value::Object(row) => row,
            _ => Map::new(),
        }
    }
}
