//! What a server says of its models in Prometheus' text format, and what that comes to.

use std::collections::BTreeMap;
use std::time::Duration;

/// Figures of one model at one time, by their names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelFigures(BTreeMap<String, f64>);

/// What a server says of each model, by the model's name. Lines of no model, and what is no figure, are passed over.
pub(crate) fn of_models(text: &str) -> BTreeMap<String, ModelFigures> {
    let mut models: BTreeMap<String, ModelFigures> = BTreeMap::new();
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
        // Where there are several of a name, as of several engines, all count.
        *models.entry(model).or_default().0.entry(name.to_owned()).or_default() += value;
    }
    models
}

/// The value of a label.
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

/// What a model does, by two looks at it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ModelLoad {
    /// Requests whose tokens are computed, and those that wait.
    pub running: u64,
    pub waiting: u64,
    /// Share of the cache that is held, if that is told.
    pub cache_use: Option<f64>,
    /// Share of all tokens of prompts so far that were found in the cache.
    pub found: Option<f64>,
    /// Tokens a second that were generated, and taken in, between the looks.
    pub tokens_per_s: f64,
    pub prompt_tokens_per_s: f64,
    /// Seconds from a request to its first token, on average: of the requests between the looks, or of all if there were
    /// none.
    pub first_token_s: Option<f64>,
    /// Share of the memory's bandwidth that reading weights took between the looks, if it is known.
    pub bandwidth_use: Option<f64>,
}

impl ModelLoad {
    /// Between two looks, so long after each other.
    pub fn between(before: &ModelFigures, now: &ModelFigures, time: Duration) -> ModelLoad {
        let of = |name: &str| now.0.get(name).copied();
        // A server that was started anew counts from zero.
        let more = |name: &str| {
            let now = of(name).unwrap_or(0.0);
            let more = now - before.0.get(name).copied().unwrap_or(0.0);
            if more < 0.0 { now } else { more }
        };
        let per_second = |name: &str| more(name) / time.as_secs_f64().max(1e-3);
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let [sum, count] = ["sum", "count"].map(|part| format!("vllm:time_to_first_token_seconds_{part}"));
        let queries = of("vllm:prefix_cache_queries_total").unwrap_or(0.0);
        let bandwidth = of("refrain:memory_bandwidth_bytes_per_second");
        ModelLoad {
            running: of("vllm:num_requests_running").unwrap_or(0.0) as u64,
            waiting: of("vllm:num_requests_waiting").unwrap_or(0.0) as u64,
            cache_use: of("vllm:kv_cache_usage_perc"),
            found: share(of("vllm:prefix_cache_hits_total").unwrap_or(0.0), queries),
            tokens_per_s: per_second("vllm:generation_tokens_total"),
            prompt_tokens_per_s: per_second("vllm:prompt_tokens_total"),
            first_token_s: share(more(&sum), more(&count))
                .or_else(|| share(of(&sum).unwrap_or(0.0), of(&count).unwrap_or(0.0))),
            bandwidth_use: bandwidth.map(|most| per_second("refrain:weight_bytes_read_total") / most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(tokens: u32, prompt: u32, first: [f64; 2]) -> String {
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
    fn two_looks_tell_what_a_model_does() {
        let models = [look(100, 1000, [2.0, 4.0]), look(150, 1000, [2.6, 6.0])].map(|text| of_models(&text));
        assert_eq!(models[0].keys().collect::<Vec<_>>(), ["a \"b\""]);
        let figures = |look: usize| &models[look]["a \"b\""];
        let load = ModelLoad::between(figures(0), figures(1), Duration::from_millis(500));
        assert_eq!((load.running, load.waiting, load.cache_use), (3, 1, Some(0.25)));
        assert_eq!((load.tokens_per_s, load.prompt_tokens_per_s), (100.0, 0.0));
        assert!((load.first_token_s.unwrap() - 0.3).abs() < 1e-9);
        assert_eq!((load.found, load.bandwidth_use), (None, None));
        // Nobody came: the mean of all. A server that was started anew: what it has.
        let still = ModelLoad::between(figures(1), figures(1), Duration::from_secs(1));
        assert!((still.first_token_s.unwrap() - 2.6 / 6.0).abs() < 1e-9);
        let anew = ModelLoad::between(figures(1), figures(0), Duration::from_secs(1));
        assert_eq!(anew.tokens_per_s, 100.0);
    }
}
