//! `GET /metrics`: the server's load in Prometheus' text format, under vLLM's names.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use refrain_engine::EngineLoad;

use crate::histogram::Histogram;
use crate::served::{ServedModel, ServedModels};

/// A model and its load.
struct CountedModel<'m> {
    model: &'m ServedModel,
    /// Gauges are 0 while the model is not loaded.
    load: EngineLoad,
}

/// A metric's name, type and help, and its value, if the model has one.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn(&CountedModel) -> Option<f64>,
);

/// Bytes read count weights only, not keys and values.
const ROWS: [Row; 15] = [
    (
        "vllm:num_requests_running",
        "gauge",
        "Requests whose tokens are being computed.",
        |counted| Some(counted.load.running as f64),
    ),
    (
        "vllm:num_requests_waiting",
        "gauge",
        "Requests that wait for a slot.",
        |counted| Some(counted.load.waiting as f64),
    ),
    (
        "vllm:num_preemptions_total",
        "counter",
        "Requests that lost their slot and are recomputed.",
        |counted| Some(counted.load.preemptions as f64),
    ),
    (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of the KV cache that requests hold, from 0 to 1.",
        |counted| Some(counted.load.pages_in_use as f64 / counted.load.pages.max(1) as f64),
    ),
    ("vllm:prompt_tokens_total", "counter", "Prompt tokens.", |counted| {
        Some(counted.load.prompt_tokens as f64)
    }),
    (
        "vllm:prefix_cache_queries_total",
        "counter",
        "Tokens looked up in the prefix cache.",
        |counted| Some(counted.load.prompt_tokens as f64),
    ),
    (
        "vllm:prefix_cache_hits_total",
        "counter",
        "Tokens found in the prefix cache.",
        |counted| Some(counted.load.cached_tokens as f64),
    ),
    (
        "vllm:generation_tokens_total",
        "counter",
        "Generated tokens.",
        |counted| Some(counted.load.generated_tokens as f64),
    ),
    (
        "vllm:spec_decode_num_drafts_total",
        "counter",
        "Drafts of next tokens that steps verified.",
        |counted| Some(counted.load.drafts as f64),
    ),
    (
        "vllm:spec_decode_num_draft_tokens_total",
        "counter",
        "Tokens of these drafts.",
        |counted| Some(counted.load.draft_tokens as f64),
    ),
    (
        "vllm:spec_decode_num_accepted_tokens_total",
        "counter",
        "Tokens of these drafts that were accepted.",
        |counted| Some(counted.load.accepted_tokens.iter().sum::<u64>() as f64),
    ),
    (
        "refrain:weight_bytes_read_total",
        "counter",
        "Bytes of weights read to generate tokens.",
        |counted| Some((counted.load.decode_steps * counted.model.bytes_per_step) as f64),
    ),
    (
        "refrain:mixed_steps_total",
        "counter",
        "Decode steps that computed tokens of prompts, too.",
        |counted| Some(counted.load.mixed_steps as f64),
    ),
    (
        "refrain:device_restarts_total",
        "counter",
        "Reloads of the model after its device failed.",
        |counted| Some(counted.load.restarts as f64),
    ),
    (
        "refrain:memory_bandwidth_bytes_per_second",
        "gauge",
        "Measured memory bandwidth of the device.",
        |counted| counted.model.bandwidth,
    ),
];

/// A histogram's name, help, and values of a model.
type HistogramRow = (&'static str, &'static str, fn(&ServedModel) -> &Histogram);

const HISTOGRAMS: [HistogramRow; 2] = [
    (
        "vllm:time_to_first_token_seconds",
        "Time from a request to its first token.",
        |model| &model.figures.first_token,
    ),
    (
        "vllm:e2e_request_latency_seconds",
        "Time from a request to its end.",
        |model| &model.figures.whole,
    ),
];

pub(crate) async fn metrics(State(models): State<Arc<ServedModels>>) -> impl IntoResponse {
    let counted = |model| CountedModel {
        model,
        load: ServedModel::load(model),
    };
    let all: Vec<CountedModel> = models.0.iter().map(|model| counted(model)).collect();
    let mut text = String::new();
    for (name, kind, help, value) in ROWS {
        let mut values = all
            .iter()
            .filter_map(|counted| Some((counted.model, value(counted)?)))
            .peekable();
        if values.peek().is_some() {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (model, value) in values {
            let _ = writeln!(text, "{name}{{{}}} {value}", label(&model.name));
        }
    }
    text.push_str(&accepted_by_position(&all));
    for (name, help, histogram) in HISTOGRAMS {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for model in &models.0 {
            text.push_str(&histogram(model).lines(name, &label(&model.name)));
        }
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Returns the lines that count accepted tokens by their position in a draft.
fn accepted_by_position(all: &[CountedModel]) -> String {
    let name = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    let mut text = format!("# HELP {name} Accepted tokens by their position in a draft.\n# TYPE {name} counter\n");
    for counted in all {
        for (position, accepted) in counted.load.accepted_tokens.iter().enumerate() {
            let label = label(&counted.model.name);
            let _ = writeln!(text, "{name}{{{label},position=\"{position}\"}} {accepted}");
        }
    }
    text
}

/// Returns the label with a model's name.
fn label(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("model_name=\"{name}\"")
}
