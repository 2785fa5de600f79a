//! Measures which executor decodes fastest, for `--mode auto`. `run` and `chat` use the result.

use std::time::{Duration, Instant};

use refrain::Executor;
use refrain_engine::{Engine, EngineOptions, Mode, ModeChoice, Model};

use super::requests::submit;
use crate::decoding::{DecodingArguments, mode_cache};

/// First tokens of an executor that are not timed, because they fill the pipeline.
const WARM_UP_TOKENS: usize = 8;
/// Timed tokens per sample. The fastest sample counts, since disturbances only make a sample longer.
const SAMPLE_TOKENS: usize = 8;
const SAMPLES: usize = 5;

/// Measures the executors and keeps the result, unless a mode is asked for or they were measured before.
///
/// # Errors
/// If an engine cannot start, or its request fails.
pub(super) fn choose(model: &Model, decoding: &DecodingArguments) -> anyhow::Result<()> {
    let executors = model.device().executors();
    let Some(cache) = mode_cache() else { return Ok(()) };
    if decoding.asked_mode(model) != Mode::Auto || executors.len() < 2 || cache.choice(model).is_some() {
        return Ok(());
    }
    let mut choice = ModeChoice {
        tokens: SAMPLES * SAMPLE_TOKENS,
        ..ModeChoice::default()
    };
    for executor in executors {
        let time = time_per_token(&arrivals(model, *executor)?);
        choice.us.insert(executor.name().to_owned(), time.as_secs_f64() * 1e6);
    }
    cache.keep(model, choice);
    Ok(())
}

/// Returns when the tokens of a text arrive that an executor decodes.
fn arrivals(model: &Model, executor: &'static dyn Executor) -> anyhow::Result<Vec<Instant>> {
    let tokens = WARM_UP_TOKENS + SAMPLES * SAMPLE_TOKENS;
    let options = EngineOptions {
        mode: Mode::Fixed(executor),
        prepares: false,
        ..EngineOptions::single((1 + tokens).min(model.config().max_position))
    };
    let engine = Engine::start(model, &options)?;
    let submitted = submit(&engine, vec![1], tokens)?;
    submitted.arrivals()
}

/// Returns the time per token of the fastest sample; `MAX` if there are too few tokens.
fn time_per_token(arrivals: &[Instant]) -> Duration {
    let counted = arrivals.get(WARM_UP_TOKENS - 1..).unwrap_or_default();
    let ends: Vec<&Instant> = counted.iter().step_by(SAMPLE_TOKENS).collect();
    let samples = ends.windows(2).map(|pair| (*pair[1] - *pair[0]) / SAMPLE_TOKENS as u32);
    samples.min().unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbances_do_not_decide() {
        let mut now = Instant::now();
        let arrivals: Vec<Instant> = (0..48)
            .map(|token| {
                // A slow start, and a hiccup of the machine.
                let ms = if token < WARM_UP_TOKENS || token == 20 { 50 } else { 1 };
                now += Duration::from_millis(ms);
                now
            })
            .collect();
        assert_eq!(time_per_token(&arrivals), Duration::from_millis(1));
        assert_eq!(time_per_token(&arrivals[..10]), Duration::MAX);
    }
}
