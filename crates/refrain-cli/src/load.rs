//! Loading weights onto the device, with a progress bar.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use refrain::Device;
use refrain_engine::fit::{Fit, Needs, Offer, weight_bytes};
use refrain_engine::{Error, LoadOptions, Model, Progress, Session};
use refrain_models::{Checkpoint, ModelConfig};

use crate::output::{about_rate, complain, human_bytes};
use crate::{Global, interrupt};

/// The context that is reserved unless the prompt or the user needs another, in tokens.
const DEFAULT_CONTEXT: usize = 4096;

/// Tokens per second that nobody has to be warned of.
const SLOW: f64 = 20.0;
/// Bytes that a token may read without being slow on any CPU.
const QUICK_BYTES: u64 = 64 << 20;

/// What is said of a saved state that does not hold for this session.
pub(crate) const COMPUTED_AGAIN: &str = "the state was made on another kind of device, or in a context of another \
     length, which this model's positions depend on: its tokens are computed again";

/// A loaded model, and how long that took.
pub(crate) struct Loaded {
    pub model: Model,
    pub time: Duration,
}

impl Loaded {
    /// Bytes of weights brought to the device per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.model.weight_bytes() as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Makes a session of the model ready for its first prompt, which is a part of loading and counts as such.
    ///
    /// # Errors
    /// As `prepare`.
    pub fn prepare(
        &mut self,
        session: &mut Session,
        prepare: impl FnOnce(&mut Session) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        prepare(session)?;
        self.time += start.elapsed();
        Ok(())
    }
}

/// Loads a checkpoint for a context of so many tokens. The progress bar shows on terminals only.
///
/// # Errors
/// If a tensor is missing or damaged, or the device fails or has too little memory.
pub(crate) fn load(
    global: &Global,
    checkpoint: &Checkpoint,
    device: &Device,
    context: usize,
) -> anyhow::Result<Loaded> {
    check_room(bytes(checkpoint, device, context), device.free_memory())?;
    if checkpoint.is_text_part() && !global.quiet {
        complain("images are not supported: only the text model of this checkpoint is used");
    }
    let bar = progress_bar(global, "loading");
    let progress = |progress: Progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    };
    let start = Instant::now();
    let model = Model::load(checkpoint, device, &LoadOptions { progress: &progress });
    bar.finish_and_clear();
    Ok(Loaded {
        model: model?,
        time: start.elapsed(),
    })
}

/// Bytes that a model takes up with a context of so many tokens.
pub(crate) fn bytes(checkpoint: &Checkpoint, device: &Device, context: usize) -> u64 {
    weight_bytes(checkpoint) + context as u64 * Session::kv_bytes_per_token(checkpoint.config(), device)
}

/// Says what speed to expect before a model is loaded that will be slow on the CPU executor: by the bytes that
/// its tokens read, and how fast memory is.
pub(crate) fn announce_speed(global: &Global, checkpoint: &Checkpoint, device: &Device) {
    if !global.quiet && device.is_cpu() {
        announce(measured(checkpoint, device).as_ref());
    }
}

/// The same, of what was measured already.
pub(crate) fn announce(fit: Option<&Fit>) {
    if let Some(warning) = fit.and_then(warning) {
        complain(&warning);
    }
}

/// How a model fits a device; nothing of models that are quick on any, and of what cannot be measured, which is not
/// worth an error: the model may run all the same.
pub(crate) fn measured(checkpoint: &Checkpoint, device: &Device) -> Option<Fit> {
    let needs = Needs::of(checkpoint, device);
    if device.is_cpu() && needs.weights_per_token < QUICK_BYTES {
        return None;
    }
    let offer = Offer::measure(device).ok()?;
    Some(Fit { needs, offer })
}

fn warning(fit: &Fit) -> Option<String> {
    let speed = fit.bound(0);
    (speed < SLOW).then(|| {
        format!(
            "note: expect at most about {} tokens/s: each reads {} of weights, and this CPU reads about {} GB/s",
            about_rate(speed),
            human_bytes(fit.needs.weights_per_token),
            about_rate(fit.offer.bandwidth / 1e9),
        )
    })
}

/// Refuses what cannot fit before the time to load it is spent. On the CPU executor nothing else
/// does: the system ends programs that use more memory than there is.
fn check_room(needed: u64, free: Option<u64>) -> anyhow::Result<()> {
    if let Some(free) = free.filter(|free| needed > *free) {
        let (needed, free) = (human_bytes(needed), human_bytes(free));
        bail!(
            "out of memory: weights and context need {needed}, and the device has {free} free; take a smaller model, \
             a shorter context (--ctx) or another device (--device)"
        );
    }
    Ok(())
}

/// Refuses a context that is longer by so many tokens than the device has room for.
///
/// # Errors
/// With the bytes that are needed and free.
pub(crate) fn check_context(config: &ModelConfig, device: &Device, more: usize) -> anyhow::Result<()> {
    let needed = (more as u64).saturating_mul(Session::kv_bytes_per_token(config, device));
    if let Some(free) = device.free_memory().filter(|free| needed > *free) {
        let (needed, free) = (human_bytes(needed), human_bytes(free));
        bail!("out of memory: such a context needs {needed} more, and the device has {free} free");
    }
    Ok(())
}

/// A bar over bytes, on terminals only. `doing` says what is under way.
pub(crate) fn progress_bar(global: &Global, doing: &'static str) -> ProgressBar {
    let target = match global.quiet {
        true => ProgressDrawTarget::hidden(),
        // Draws nothing where the standard error is no terminal.
        false => ProgressDrawTarget::stderr(),
    };
    let template = "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, target)
        .with_style(style.progress_chars("=> "))
        .with_message(doing)
}

/// Shows how far a checkpoint is written; breaks off where the user wishes so.
pub(crate) fn written(bar: &ProgressBar, progress: refrain_formats::WriteProgress) -> ControlFlow<()> {
    bar.set_length(progress.total);
    bar.set_position(progress.done);
    if interrupt::requested() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// A bar over things that are counted, on terminals only; it appears with the first [`show`].
pub(crate) fn count_bar(global: &Global, doing: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos} of {len}");
    progress_bar(global, doing).with_style(style.unwrap_or(ProgressStyle::default_bar()).progress_chars("=> "))
}

/// Shows how many of how many are done; the bar goes away with the last.
pub(crate) fn show(bar: &ProgressBar, done: usize, total: usize) {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    if done == total {
        bar.finish_and_clear();
        bar.reset();
    }
}

/// The context to reserve for `tokens` known tokens and, if that is known, so many more: what the
/// user asks for, else enough for them, within the model's limit.
///
/// # Errors
/// If the user asks for more than the model was made for, or the known tokens do not fit.
pub(crate) fn context(
    config: &ModelConfig,
    asked: Option<usize>,
    tokens: usize,
    more: Option<usize>,
) -> anyhow::Result<usize> {
    let limit = config.max_position;
    if let Some(asked) = asked.filter(|asked| *asked > limit) {
        bail!("a context of {asked} tokens is more than this model was made for; take --ctx {limit} or less");
    }
    let wanted = tokens
        .saturating_add(more.unwrap_or(DEFAULT_CONTEXT / 2))
        .max(DEFAULT_CONTEXT);
    let context = asked.unwrap_or(wanted.min(limit));
    if tokens > context {
        let hint = if context < limit {
            format!("; take a longer one with --ctx (up to {limit}), or a shorter prompt")
        } else {
            ", which is this model's limit; take a shorter prompt".to_owned()
        };
        bail!("the prompt has {tokens} tokens, but the context holds {context}{hint}");
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(limit: usize) -> ModelConfig {
        let mut config = crate::demo::checkpoint().unwrap().config().clone();
        config.max_position = limit;
        config
    }

    #[test]
    fn the_context_grows_with_the_prompt_up_to_the_models_limit() {
        let context = |limit, tokens, more| super::context(&config(limit), None, tokens, more).unwrap();
        assert_eq!(context(40_960, 10, None), 4096);
        assert_eq!(context(40_960, 10, Some(100)), 4096);
        assert_eq!(context(40_960, 5000, None), 7048);
        assert_eq!(context(40_960, 10, Some(10_000)), 10_010);
        assert_eq!(context(1024, 10, None), 1024);
        assert_eq!(context(6000, 5000, Some(usize::MAX)), 6000);
    }

    #[test]
    fn more_than_the_device_has_is_refused() {
        assert!(check_room(1 << 30, Some(2 << 30)).is_ok() && check_room(1 << 30, None).is_ok());
        let error = check_room(3 << 30, Some(2 << 30)).unwrap_err().to_string();
        assert!(error.contains("need 3.0 GiB, and the device has 2.0 GiB"), "{error}");
    }

    #[test]
    fn only_a_slow_model_is_announced() {
        let fit = |bandwidth| Fit {
            needs: Needs {
                weights: 340 << 20,
                weights_per_token: 340 << 20,
                kv_per_position: 1,
                layers: 28,
                max_context: 4096,
            },
            offer: Offer {
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
    fn a_prompt_that_does_not_fit_is_refused_with_what_to_do() {
        let refused = |asked, tokens| {
            super::context(&config(1024), asked, tokens, None)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(Some(16), 17).contains("--ctx (up to 1024)"));
        assert!(refused(None, 1025).contains("1025 tokens, but the context holds 1024"));
        assert!(refused(Some(2048), 5).contains("2048 tokens is more than"));
    }
}
