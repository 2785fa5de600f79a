//! Parses a server's Prometheus metrics and derives each model's load.

use std::collections::BTreeMap;
use std::time::Duration;

/// One model's metrics at one time, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelMetrics(BTreeMap<String, f64>);

/// Parses Prometheus text into metrics by model name. Lines without a model or with an invalid value are skipped.
pub(crate) fn parse(text: &str) -> BTreeMap<String, ModelMetrics> {
    let mut models: BTreeMap<String, ModelMetrics> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once('}') else {
            continue;
        };
        let (Some(model), Ok(value)) = (label(labels, "model_name"), value.trim().parse::<f64>()) else {
            continue;
        };
        // Several values of one name, such as one per engine, are added up.
        *models.entry(model).or_default().0.entry(name.to_owned()).or_default() += value;
    }
    models
}

/// Returns the value of a label.
fn label(labels: &str, name: &str) -> Option<String> {
    let begin = labels.match_indices(name).find_map(|(at, _)| {
        let is_first = at == 0 || labels[..at].ends_with(',');
        labels[at + name.len()..].strip_prefix("=\"").filter(|_| is_first)
    })?;
    let (mut value, mut letters) = (String::new(), begin.chars());
    loop {
        match letters.next()? {
            '"' => return Some(value),
            '\\' => value.push(match letters.next()? {
                'n' => '\n',
                other => other,
            }),
            letter => value.push(letter),
        }
    }
}

/// A model's load between two samples of its metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ModelLoad {
    /// Requests that are running, and requests that are waiting.
    pub running: u64,
    pub waiting: u64,
    /// Share of the KV cache in use, if reported.
    pub cache_use: Option<f64>,
    /// Prefix cache hit rate: the share of all prompt tokens so far that were cache_hit_rate in the cache.
    pub cache_hit_rate: Option<f64>,
    /// Tokens per second generated, and prompt tokens per second processed, between the samples.
    pub tokens_per_s: f64,
    pub prompt_tokens_per_s: f64,
    /// Mean time to first token, in seconds, of the requests between the samples; of all requests if there were none.
    pub first_token_s: Option<f64>,
    /// Share of memory bandwidth spent on reading weights between the samples, if the bandwidth is known.
    pub bandwidth_use: Option<f64>,
}

impl ModelLoad {
    /// Computes the load from two samples taken `time` apart.
    pub fn between(before: &ModelMetrics, now: &ModelMetrics, time: Duration) -> ModelLoad {
        let of = |name: &str| now.0.get(name).copied();
        // A restarted server counts from zero.
        let increase = |name: &str| {
            let now = of(name).unwrap_or(0.0);
            let increase = now - before.0.get(name).copied().unwrap_or(0.0);
            if increase < 0.0 { now } else { increase }
        };
        let per_second = |name: &str| increase(name) / time.as_secs_f64().max(1e-3);
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let [sum, count] = ["sum", "count"].map(|part| format!("vllm:time_to_first_token_seconds_{part}"));
        let queries = of("vllm:prefix_cache_queries_total").unwrap_or(0.0);
        let bandwidth = of("refrain:memory_bandwidth_bytes_per_second");
        ModelLoad {
            running: of("vllm:num_requests_running").unwrap_or(0.0) as u64,
            waiting: of("vllm:num_requests_waiting").unwrap_or(0.0) as u64,
            cache_use: of("vllm:kv_cache_usage_perc"),
            cache_hit_rate: share(of("vllm:prefix_cache_hits_total").unwrap_or(0.0), queries),
            tokens_per_s: per_second("vllm:generation_tokens_total"),
            prompt_tokens_per_s: per_second("vllm:prompt_tokens_total"),
            first_token_s: share(increase(&sum), increase(&count))
                .or_else(|| share(of(&sum).unwrap_or(0.0), of(&count).unwrap_or(0.0))),
            bandwidth_use: bandwidth.map(|peak| per_second("refrain:weight_bytes_read_total") / peak),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tokens: u32, prompt: u32, first: [f64; 2]) -> String {
        let [sum, count] = first;
        format!(
            "# HELP vllm:generation_tokens_total Tokens.\n# TYPE vllm:generation_tokens_total counter\n\
             vllm:num_requests_running{{model_name=\"a \\\"b\\\"\"}} 3\nvllm:num_requests_waiting{{model_name=\"a \\\"b\\\"\"}} 1\n\
             vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"a \\\"b\\\"\"}} 0.25\n\
             vllm:generation_tokens_total{{model_name=\"a \\\"b\\\"\"}} {tokens}\n\
             vllm:prompt_tokens_total{{model_name=\"a \\\"b\\\"\"}} {prompt}\n\
             vllm:time_to_first_token_seconds_sum{{model_name=\"a \\\"b\\\"\"}} {sum}\n\
             vllm:time_to_first_token_seconds_count{{model_name=\"a \\\"b\\\"\"}} {count}\n\
             process_seconds 7\nnonsense{{\nvllm:x{{model_name=\"other\"}} NaN and more\n"
        )
    }

    #[test]
    fn derives_load_from_two_samples() {
        let models = [sample(100, 1000, [2.0, 4.0]), sample(150, 1000, [2.6, 6.0])].map(|text| parse(&text));
        assert_eq!(models[0].keys().collect::<Vec<_>>(), ["a \"b\""]);
        let metrics = |sample: usize| &models[sample]["a \"b\""];
        let load = ModelLoad::between(metrics(0), metrics(1), Duration::from_millis(500));
        assert_eq!((load.running, load.waiting, load.cache_use), (3, 1, Some(0.25)));
        assert_eq!((load.tokens_per_s, load.prompt_tokens_per_s), (100.0, 0.0));
        assert!((load.first_token_s.unwrap() - 0.3).abs() < 1e-9);
        assert_eq!((load.cache_hit_rate, load.bandwidth_use), (None, None));
        // Without new requests: the mean of all. After a restart: the absolute counts.
        let still = ModelLoad::between(metrics(1), metrics(1), Duration::from_secs(1));
        assert!((still.first_token_s.unwrap() - 2.6 / 6.0).abs() < 1e-9);
        let restarted = ModelLoad::between(metrics(1), metrics(0), Duration::from_secs(1));
        assert_eq!(restarted.tokens_per_s, 100.0);
    }
}
