//! Models that are named as on the Hugging Face hub: found in its cache, downloaded if the user asks.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use indicatif::ProgressBar;
use refrain_hub::{CachedModel, DownloadPlan, Hub, HubCache, HubSettings, ModelName, Outline, Watcher};

use crate::output::{self, human_bytes};
use crate::{Global, load};

/// The settings of the environment and the command line.
///
/// # Errors
/// If one of them cannot be meant.
pub(crate) fn settings(global: &Global) -> anyhow::Result<HubSettings> {
    let mut settings = HubSettings::from_environment()?;
    settings.offline |= global.offline;
    Ok(settings)
}

/// What to open for a model of the cache. Makes no request.
///
/// # Errors
/// If it is not there.
pub(crate) fn cached(model: &str) -> anyhow::Result<PathBuf> {
    let name = name(model)?;
    match HubCache::new(&HubSettings::from_environment()?.cache).find(&name)? {
        Some(found) => Ok(found.path),
        None => Err(not_cached(model, &name)),
    }
}

/// What to open for a model of the hub, which is downloaded unless it is in the cache.
///
/// # Errors
/// If there is no such model, or the download fails.
pub(crate) fn cached_or_pulled(global: &Global, model: &str) -> anyhow::Result<PathBuf> {
    let name = name(model)?;
    let settings = settings(global)?;
    if let Some(found) = HubCache::new(&settings.cache).find(&name)? {
        say(global, found.notice.as_deref());
        return Ok(found.path);
    }
    let folder = model.split('/').next().unwrap_or(model);
    if !name.is_full() || Path::new(folder).is_dir() {
        return Err(not_cached(model, &name));
    }
    Ok(pull(global, settings, &name)?.path)
}

/// What it would take to have a model here.
#[derive(Debug, Clone)]
pub(crate) struct MissingFiles {
    /// Bytes that are not here yet.
    pub bytes: u64,
    /// The hub's address.
    pub from: String,
    /// Bytes free on the disk of the cache, where the system tells.
    pub free_space: Option<u64>,
}

/// What describes a model of the hub that is not in the cache, without its weights; `None` if the text
/// is no full name of one.
///
/// # Errors
/// If there is no such model, or the hub cannot be asked.
pub(crate) fn outline(global: &Global, model: &str) -> anyhow::Result<Option<(Outline, MissingFiles)>> {
    let Some(name) = name(model).ok().filter(ModelName::is_full) else {
        return Ok(None);
    };
    let settings = settings(global)?;
    let folder = model.split('/').next().unwrap_or(model);
    if Path::new(folder).is_dir() || HubCache::new(&settings.cache).find(&name)?.is_some() {
        return Ok(None);
    }
    let hub = Hub::new(settings);
    let watcher = Bar::new(global);
    let plan = hub.plan(&name, &watcher)?;
    say(global, plan.selection.notice.as_deref());
    say(
        global,
        Some(&format!("asking {} for the description of {name}", hub.endpoint())),
    );
    let outline = hub.outline(&plan, &refrain_formats::holds_whole_header, &watcher)?;
    let download = MissingFiles {
        bytes: plan.size() - plan.bytes_here().min(plan.size()),
        from: hub.endpoint().to_owned(),
        free_space: hub.free_space(),
    };
    Ok(Some((outline, download)))
}

/// Downloads what of a model is not here, with a line that says so and a progress bar.
///
/// # Errors
/// If there is no such model, or the download fails.
pub(crate) fn pull(global: &Global, settings: HubSettings, name: &ModelName) -> anyhow::Result<CachedModel> {
    let hub = Hub::new(settings);
    let watcher = Bar::new(global);
    let plan = hub.plan(name, &watcher)?;
    say(global, plan.selection.notice.as_deref());
    say(global, Some(&summary(&plan, hub.endpoint())));
    let model = hub.download(&plan, &watcher);
    watcher.bar.finish_and_clear();
    Ok(model?)
}

fn summary(plan: &DownloadPlan, endpoint: &str) -> String {
    let files = match &plan.files[..] {
        [file] => file.path.clone(),
        files => format!("{} files", files.len()),
    };
    let (size, here) = (plan.size(), plan.bytes_here());
    let from = match here {
        0 => format!("from {endpoint}"),
        _ if here == size => "all here already".to_owned(),
        _ => format!("from {endpoint}, {} of it here already", human_bytes(here)),
    };
    format!("pulling {}: {files}, {}, {from}", plan.name, human_bytes(size))
}

/// Reads a name, unless the text can only be a path.
fn name(model: &str) -> anyhow::Result<ModelName> {
    let is_path = model.contains('\\') || model.starts_with(['.', '/', '~']) || model.ends_with('/');
    let is_file = !model.contains(':') && (model.ends_with(".gguf") || model.ends_with(".safetensors"));
    if is_path || is_file {
        bail!("there is no model at {model:?}; {}", crate::model::KINDS);
    }
    model
        .parse()
        .map_err(|error| anyhow!("there is no model at {model:?}, and {error}; {}", crate::model::KINDS))
}

fn not_cached(model: &str, name: &ModelName) -> anyhow::Error {
    if name.is_full() {
        anyhow!(
            "there is no model at {model:?}, and none of this name has been downloaded; `refrain pull {name}` \
             downloads it from the Hugging Face hub, `refrain doctor {name}` says before that how it would fit"
        )
    } else {
        anyhow!(
            "there is no model at {model:?}, and none of this name has been downloaded (`refrain list` shows those); {}",
            crate::model::KINDS
        )
    }
}

fn say(global: &Global, line: Option<&str>) {
    if let Some(line) = line.filter(|_| !global.quiet) {
        output::complain(line);
    }
}

/// Shows a download on terminals, and its troubles everywhere.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new(global: &Global) -> Self {
        Self {
            bar: load::progress_bar(global, "downloading"),
        }
    }
}

impl Watcher for Bar {
    fn progress(&self, done: u64, total: u64) {
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
            // What is here already says nothing about the speed.
            self.bar.set_position(done);
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
    }

    fn notice(&self, line: &str) {
        // Also with --quiet: nobody should wait without knowing for what.
        self.bar.suspend(|| output::complain(line));
    }
}
