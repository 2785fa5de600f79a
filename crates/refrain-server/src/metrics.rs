//! How much the server does: figures in Prometheus' text format, under the names that vLLM has for them.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use refrain_engine::EngineLoad;

use crate::figures::Histogram;
use crate::served::{ServedModel, ServedModels};

/// Of one model.
struct CountedModel<'m> {
    model: &'m ServedModel,
    /// Zeros while it is not loaded.
    load: EngineLoad,
}

/// A figure's name, kind and meaning, and its value, if a model has it.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn(&CountedModel) -> Option<f64>,
);

/// Weights alone are counted as read: keys and values are left out.
const ROWS: [Row; 11] = [
    (
        "vllm:num_requests_running",
        "gauge",
        "Requests whose tokens are being computed.",
        |of| Some(of.load.running as f64),
    ),
    (
        "vllm:num_requests_waiting",
        "gauge",
        "Requests that wait for their turn.",
        |of| Some(of.load.waiting as f64),
    ),
    (
        "vllm:num_preemptions_total",
        "counter",
        "Times that a request gave its place up and is computed again.",
        |of| Some(of.load.preemptions as f64),
    ),
    (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of the cache that requests hold, 1 is all.",
        |of| Some(of.load.pages_in_use as f64 / of.load.pages.max(1) as f64),
    ),
    ("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", |of| {
        Some(of.load.prompt_tokens as f64)
    }),
    (
        "vllm:prefix_cache_queries_total",
        "counter",
        "Tokens looked for in the cache.",
        |of| Some(of.load.prompt_tokens as f64),
    ),
    (
        "vllm:prefix_cache_hits_total",
        "counter",
        "Tokens found in the cache.",
        |of| Some(of.load.cached_tokens as f64),
    ),
    (
        "vllm:generation_tokens_total",
        "counter",
        "Tokens that were generated.",
        |of| Some(of.load.generated_tokens as f64),
    ),
    (
        "refrain:weight_bytes_read_total",
        "counter",
        "Bytes of weights read to generate tokens.",
        |of| Some((of.load.decode_steps * of.model.bytes_per_step) as f64),
    ),
    (
        "refrain:device_restarts_total",
        "counter",
        "Times that the model was loaded again after its device failed.",
        |of| Some(of.load.restarts as f64),
    ),
    (
        "refrain:memory_bandwidth_bytes_per_second",
        "gauge",
        "Bytes a second that the device was seen to read.",
        |of| of.model.bandwidth,
    ),
];

/// A histogram's name and meaning, and where a model has it.
type HistogramRow = (&'static str, &'static str, fn(&ServedModel) -> &Histogram);

const HISTOGRAMS: [HistogramRow; 2] = [
    (
        "vllm:time_to_first_token_seconds",
        "From a request to its first token.",
        |model| &model.figures.first_token,
    ),
    (
        "vllm:e2e_request_latency_seconds",
        "From a request to its end.",
        |model| &model.figures.whole,
    ),
];

pub(crate) async fn metrics(State(models): State<Arc<ServedModels>>) -> impl IntoResponse {
    let load = |model: &ServedModel| model.loaded().map_or(EngineLoad::default(), |engine| engine.load());
    let of_model = |model| CountedModel {
        model,
        load: load(model),
    };
    let all: Vec<CountedModel> = models.0.iter().map(|model| of_model(model)).collect();
    let mut text = String::new();
    for (name, kind, help, value) in ROWS {
        let mut values = all.iter().filter_map(|of| Some((of.model, value(of)?))).peekable();
        if values.peek().is_some() {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (model, value) in values {
            let _ = writeln!(text, "{name}{{{}}} {value}", label(&model.name));
        }
    }
    for (name, help, histogram) in HISTOGRAMS {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for model in &models.0 {
            text.push_str(&histogram(model).lines(name, &label(&model.name)));
        }
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// The label of a model.
fn label(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("model_name=\"{name}\"")
}
