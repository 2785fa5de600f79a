//! Whether the server works, and how much it does.

use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::json;

use crate::served::ServedModel;

pub(crate) async fn health(State(model): State<Arc<ServedModel>>) -> impl IntoResponse {
    let told = |status, said: &str| (status, Json(json!({"status": said})));
    if model.engine.has_failed() {
        told(
            StatusCode::SERVICE_UNAVAILABLE,
            "the device failed; start the server again",
        )
    } else if model.engine.is_recovering() {
        told(
            StatusCode::SERVICE_UNAVAILABLE,
            "the device failed; the model is being loaded again",
        )
    } else {
        told(StatusCode::OK, "ok")
    }
}

/// Figures in Prometheus' text format, under the names that vLLM has for them.
pub(crate) async fn metrics(State(model): State<Arc<ServedModel>>) -> impl IntoResponse {
    let load = model.engine.load();
    let used = load.pages_in_use as f64 / load.pages.max(1) as f64;
    let rows = [
        (
            "num_requests_running",
            "gauge",
            "Requests whose tokens are being computed.",
            load.running as f64,
        ),
        (
            "num_requests_waiting",
            "gauge",
            "Requests that wait for their turn.",
            load.waiting as f64,
        ),
        (
            "kv_cache_usage_perc",
            "gauge",
            "Share of the cache that requests hold, 1 is all.",
            used,
        ),
        (
            "prompt_tokens_total",
            "counter",
            "Tokens of prompts.",
            load.prompt_tokens as f64,
        ),
        (
            "prefix_cache_queries_total",
            "counter",
            "Tokens looked for in the cache.",
            load.prompt_tokens as f64,
        ),
        (
            "prefix_cache_hits_total",
            "counter",
            "Tokens found in the cache.",
            load.cached_tokens as f64,
        ),
        (
            "generation_tokens_total",
            "counter",
            "Tokens that were generated.",
            load.generated_tokens as f64,
        ),
    ];
    let rows = rows.map(|(name, kind, help, value)| (format!("vllm:{name}"), kind, help, value));
    let mut text = String::new();
    let label = format!("model_name=\"{}\"", label(&model.name));
    for (name, kind, help, value) in rows.into_iter().chain(own_figures(&model)) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let _ = writeln!(text, "{name}{{{label}}} {value}");
    }
    let figures = &model.figures;
    for (name, help, histogram) in [
        (
            "vllm:time_to_first_token_seconds",
            "From a request to its first token.",
            &figures.first_token,
        ),
        (
            "vllm:e2e_request_latency_seconds",
            "From a request to its end.",
            &figures.whole,
        ),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        text.push_str(&histogram.lines(name, &label));
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// How much of the memory's bandwidth is used (what weights take of it, keys and values left out), and how often the device
/// failed.
fn own_figures(model: &ServedModel) -> impl Iterator<Item = (String, &'static str, &'static str, f64)> {
    let bytes = (
        "refrain:weight_bytes_read_total".to_owned(),
        "counter",
        "Bytes of weights read to generate tokens.",
        (model.engine.load().decode_steps * model.bytes_per_step) as f64,
    );
    let restarts = (
        "refrain:device_restarts_total".to_owned(),
        "counter",
        "Times that the model was loaded again after its device failed.",
        model.engine.load().restarts as f64,
    );
    let most = |most| {
        (
            "refrain:memory_bandwidth_bytes_per_second".to_owned(),
            "gauge",
            "Bytes a second that the device was seen to read.",
            most,
        )
    };
    [bytes, restarts].into_iter().chain(model.bandwidth.map(most))
}

/// A name as the value of a label.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
