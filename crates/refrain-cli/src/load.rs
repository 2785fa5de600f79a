//! Loads weights onto the device with a progress bar, and checks memory and context length.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use refrain::Device;
use refrain_engine::fit::{Capacity, Fit, Requirements, mtp_bytes, weight_bytes};
use refrain_engine::{CacheTypes, EngineOptions, Error, LoadOptions, Model, Progress, Speculation};
use refrain_models::{Checkpoint, ModelConfig};

use crate::output::{about_rate, eprint_line, human_bytes};
use crate::{Global, interrupt};

/// Default context length in tokens.
const DEFAULT_CONTEXT: usize = 4096;

/// Expected speeds below this, in tokens per second, cause a warning.
const SLOW_TOKENS_PER_S: f64 = 20.0;
/// Models that read fewer bytes per token are fast on any CPU.
const FAST_BYTES_PER_TOKEN: u64 = 64 << 20;

/// Notice that a saved state does not fit and is recomputed.
pub(crate) const STATE_RECOMPUTED: &str = "the state was saved on another kind of device, by another version, with another \
     --kv-type or --speculate, or with another context length that this model's positions depend on: its tokens are recomputed";

/// A loaded model and its loading time.
pub(crate) struct Loaded {
    pub model: Model,
    pub time: Duration,
}

impl Loaded {
    /// Loading speed in bytes of weights per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.model.weight_bytes() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Prepares for a first prompt. The time counts as loading time.
    ///
    /// # Errors
    /// The errors of `prepare`.
    pub fn prepare(&mut self, prepare: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let start = Instant::now();
        prepare()?;
        self.time += start.elapsed();
        Ok(())
    }
}

/// Loads a checkpoint for a context of `context` tokens with a KV cache of type `cache`. The progress bar shows on terminals only.
///
/// # Errors
/// If a tensor is missing or damaged, or the device fails or has too little memory.
pub(crate) fn load(
    global: &Global,
    checkpoint: &Checkpoint,
    device: &Device,
    cache: CacheTypes,
    context: usize,
) -> anyhow::Result<Loaded> {
    load_speculating(global, checkpoint, device, cache, context, Speculation::Off)
}

/// As [`load`], together with what an engine with this speculation needs of the checkpoint.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_speculating(
    global: &Global,
    checkpoint: &Checkpoint,
    device: &Device,
    cache: CacheTypes,
    context: usize,
    speculation: Speculation,
) -> anyhow::Result<Loaded> {
    let needed = memory_needed(checkpoint, cache, context, speculation);
    check_memory(needed, device.free_memory())?;
    if checkpoint.is_text_part() && !global.quiet {
        eprint_line("images are not supported: only the text model of this checkpoint is used");
    }
    let bar = progress_bar(global, "loading");
    let progress = |progress: Progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    };
    let start = Instant::now();
    let options = LoadOptions {
        progress: &progress,
        cache: Some(cache),
        mtp_head: speculation.uses_mtp_head(),
    };
    let model = Model::load(checkpoint, device, &options);
    bar.finish_and_clear();
    Ok(Loaded {
        model: model.map_err(|why| with_head_hint(why, checkpoint.config(), speculation))?,
        time: start.elapsed(),
    })
}

/// Says how to load a model without its multi-token prediction head, if that is what cannot be loaded.
fn with_head_hint(why: Error, config: &ModelConfig, speculation: Speculation) -> anyhow::Error {
    let message = why.to_string();
    let mut words = message.split_whitespace();
    if speculation.uses_mtp_head() && words.any(|word| config.is_mtp(word.trim_end_matches(':'))) {
        anyhow!("{why}; --speculate off leaves out this multi-token prediction head")
    } else {
        why.into()
    }
}

/// Bytes of memory that a model needs with a context of `context` tokens, and what speculation needs of it.
pub(crate) fn memory_needed(
    checkpoint: &Checkpoint,
    cache: CacheTypes,
    context: usize,
    speculation: Speculation,
) -> u64 {
    let options = EngineOptions {
        speculation,
        ..EngineOptions::default()
    };
    let head = if speculation.uses_mtp_head() {
        mtp_bytes(checkpoint)
    } else {
        0
    };
    weight_bytes(checkpoint) + head + context as u64 * options.kv_bytes_per_token(checkpoint.config(), cache)
}

/// Warns before loading a model that will be slow on the CPU, judging by the bytes per token and the memory bandwidth.
pub(crate) fn warn_if_slow(global: &Global, checkpoint: &Checkpoint, device: &Device, cache: CacheTypes) {
    if !global.quiet && device.is_cpu() {
        print_speed_warning(measure_fit(checkpoint, device, cache).as_ref());
    }
}

/// As [`warn_if_slow`], from an existing measurement.
pub(crate) fn print_speed_warning(fit: Option<&Fit>) {
    if let Some(warning) = fit.and_then(warning) {
        eprint_line(&warning);
    }
}

/// Measures how a model fits a device. `None` for models that are fast on any CPU, and if the measurement fails: the
/// model may run all the same.
pub(crate) fn measure_fit(checkpoint: &Checkpoint, device: &Device, cache: CacheTypes) -> Option<Fit> {
    let requirements = Requirements::of(checkpoint, cache);
    if device.is_cpu() && requirements.weights_per_token < FAST_BYTES_PER_TOKEN {
        return None;
    }
    let capacity = Capacity::measure(device).ok()?;
    Some(Fit { requirements, capacity })
}

fn warning(fit: &Fit) -> Option<String> {
    let speed = fit.bound(0);
    (speed < SLOW_TOKENS_PER_S).then(|| {
        format!(
            "note: expect at most about {} tokens/s: each reads {} of weights, and this CPU reads about {} GB/s",
            about_rate(speed),
            human_bytes(fit.requirements.weights_per_token),
            about_rate(fit.capacity.bandwidth / 1e9),
        )
    })
}

/// Fails early if a model cannot fit. On the CPU nothing else does: the system kills programs that run out of memory.
///
/// # Errors
/// If more is needed than is free.
pub(crate) fn check_memory(needed: u64, free: Option<u64>) -> anyhow::Result<()> {
    if let Some(free) = free.filter(|free| needed > *free) {
        let (needed, free) = (human_bytes(needed), human_bytes(free));
        bail!(
            "out of memory: weights and context need {needed}, and the device has {free} free; use a smaller model, \
             a shorter context (--ctx) or another device (--device)"
        );
    }
    Ok(())
}

/// Fails if the device has no memory for `more` additional tokens of context.
///
/// # Errors
/// If memory is too short; the message has the needed and the free bytes.
pub(crate) fn check_context(model: &Model, more: usize) -> anyhow::Result<()> {
    let needed = (more as u64).saturating_mul(model.cache_types().bytes_per_token(model.config()));
    if let Some(free) = model.device().free_memory().filter(|free| needed > *free) {
        let (needed, free) = (human_bytes(needed), human_bytes(free));
        bail!("out of memory: this context needs {needed} more, and the device has {free} free");
    }
    Ok(())
}

/// A progress bar in bytes, shown on terminals only. `message` says what is in progress.
pub(crate) fn progress_bar(global: &Global, message: &'static str) -> ProgressBar {
    let target = if global.quiet {
        ProgressDrawTarget::hidden()
    } else {
        // Draws nothing if standard error is not a terminal.
        ProgressDrawTarget::stderr()
    };
    let template = "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, target)
        .with_style(style.progress_chars("=> "))
        .with_message(message)
}

/// Shows the progress of writing a checkpoint; breaks if the user pressed Ctrl-C.
pub(crate) fn show_write_progress(bar: &ProgressBar, progress: refrain_formats::WriteProgress) -> ControlFlow<()> {
    bar.set_length(progress.total);
    bar.set_position(progress.done);
    if interrupt::requested() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// A progress bar over a count, shown on terminals only. It appears with the first [`update_bar`].
pub(crate) fn count_bar(global: &Global, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos} of {len}");
    progress_bar(global, message).with_style(style.unwrap_or(ProgressStyle::default_bar()).progress_chars("=> "))
}

/// Updates the bar; it disappears when `done` reaches `total`.
pub(crate) fn update_bar(bar: &ProgressBar, done: usize, total: usize) {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    if done == total {
        bar.finish_and_clear();
        bar.reset();
    }
}

/// Context length for a prompt of `tokens` tokens and `more` new ones: `requested` if given, else enough for both,
/// within the model's limit.
///
/// # Errors
/// If `requested` exceeds the model's limit, or the prompt does not fit.
pub(crate) fn context(
    config: &ModelConfig,
    requested: Option<usize>,
    tokens: usize,
    more: Option<usize>,
) -> anyhow::Result<usize> {
    let limit = config.max_position;
    if let Some(requested) = requested.filter(|requested| *requested > limit) {
        bail!("a context of {requested} tokens exceeds this model's limit; use --ctx {limit} or less");
    }
    let wanted = tokens
        .saturating_add(more.unwrap_or(DEFAULT_CONTEXT / 2))
        .max(DEFAULT_CONTEXT);
    let context = requested.unwrap_or(wanted.min(limit));
    // A response needs a token, at least.
    if tokens >= context {
        let hint = if context < limit {
            format!(": use a longer context with --ctx (up to {limit}), or a shorter prompt")
        } else {
            ", which is this model's limit; use a shorter prompt".to_owned()
        };
        bail!("the prompt has {tokens} tokens, but the context holds {context}, response included{hint}");
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(limit: usize) -> ModelConfig {
        let mut config = refrain_models::demo::checkpoint().unwrap().config().clone();
        config.max_position = limit;
        config
    }

    #[test]
    fn context_grows_with_the_prompt_up_to_the_models_limit() {
        let context = |limit, tokens, more| super::context(&config(limit), None, tokens, more).unwrap();
        assert_eq!(context(40_960, 10, None), 4096);
        assert_eq!(context(40_960, 10, Some(100)), 4096);
        assert_eq!(context(40_960, 5000, None), 7048);
        assert_eq!(context(40_960, 10, Some(10_000)), 10_010);
        assert_eq!(context(1024, 10, None), 1024);
        assert_eq!(context(6000, 5000, Some(usize::MAX)), 6000);
    }

    #[test]
    fn rejects_more_memory_than_the_device_has() {
        assert!(check_memory(1 << 30, Some(2 << 30)).is_ok() && check_memory(1 << 30, None).is_ok());
        let error = check_memory(3 << 30, Some(2 << 30)).unwrap_err().to_string();
        assert!(error.contains("need 3.0 GiB, and the device has 2.0 GiB"), "{error}");
    }

    #[test]
    fn warns_only_of_slow_models() {
        let fit = |bandwidth| Fit {
            requirements: Requirements {
                weights: 340 << 20,
                weights_per_token: 340 << 20,
                kv_per_position: 1,
                layers: 28,
                max_context: 4096,
            },
            capacity: Capacity {
                free: None,
                bandwidth,
                step_seconds: 0.0,
            },
        };
        assert_eq!(warning(&fit(20e9)), None);
        let line = warning(&fit(2.14e9)).unwrap();
        assert!(
            line.contains("at most about 6.0 tokens/s: each reads 340.0 MiB") && line.contains("about 2.1 GB/s"),
            "{line}"
        );
    }

    #[test]
    fn rejects_a_prompt_that_does_not_fit_with_a_hint() {
        let refused = |requested, tokens| {
            super::context(&config(1024), requested, tokens, None)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(Some(16), 17).contains("--ctx (up to 1024)"));
        assert!(refused(None, 1025).contains("1025 tokens, but the context holds 1024"));
        assert!(refused(Some(2048), 5).contains("2048 tokens exceeds"));
    }
}
