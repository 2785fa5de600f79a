//! Models named as on the Hugging Face hub: looked up in its cache, downloaded on request.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use indicatif::ProgressBar;
use refrain_hub::{CachedModel, DownloadPlan, Hub, HubCache, HubSettings, ModelName, Outline, Watcher};

use crate::output::{self, human_bytes};
use crate::{Global, load};

/// Hub settings from the environment and the command line.
///
/// # Errors
/// If one of them is invalid.
pub(crate) fn settings(global: &Global) -> anyhow::Result<HubSettings> {
    let mut settings = HubSettings::from_environment()?;
    settings.offline |= global.offline;
    Ok(settings)
}

/// Returns the path of a downloaded model. Makes no request.
///
/// # Errors
/// If it is not downloaded.
pub(crate) fn cached(model: &str) -> anyhow::Result<PathBuf> {
    let name = name(model)?;
    match HubCache::new(&HubSettings::from_environment()?.cache).find(&name)? {
        Some(found) => Ok(found.path),
        None => Err(not_cached(model, &name)),
    }
}

/// Returns the path of a hub model, downloading it if needed.
///
/// # Errors
/// If there is no such model, or the download fails.
pub(crate) fn cached_or_pulled(global: &Global, model: &str) -> anyhow::Result<PathBuf> {
    let name = name(model)?;
    let settings = settings(global)?;
    if let Some(found) = HubCache::new(&settings.cache).find(&name)? {
        log(global, found.notice.as_deref());
        return Ok(found.path);
    }
    let folder = model.split('/').next().unwrap_or(model);
    if !name.is_full() || Path::new(folder).is_dir() {
        return Err(not_cached(model, &name));
    }
    Ok(pull(global, settings, &name)?.path)
}

/// What remains to be downloaded of a model.
#[derive(Debug, Clone)]
pub(crate) struct MissingFiles {
    /// Bytes to download.
    pub bytes: u64,
    /// The hub's address.
    pub from: String,
    /// Free bytes on the cache's disk, if the system reports them.
    pub free_space: Option<u64>,
}

/// Fetches the files that describe a hub model that is not downloaded, without its weights. `None` if it is downloaded
/// or `model` is not a full repository name.
///
/// # Errors
/// If there is no such model, or the hub cannot be reached.
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
    let watcher = DownloadBar::new(global);
    let plan = hub.plan(&name, &watcher)?;
    log(global, plan.selection.notice.as_deref());
    log(
        global,
        Some(&format!("fetching the metadata of {name} from {}", hub.endpoint())),
    );
    let outline = hub.outline(&plan, &refrain_formats::has_complete_header, &watcher)?;
    let download = MissingFiles {
        bytes: plan.size() - plan.cached_bytes().min(plan.size()),
        from: hub.endpoint().to_owned(),
        free_space: hub.free_space(),
    };
    Ok(Some((outline, download)))
}

/// Downloads the missing files of a model, with a status line and a progress bar.
///
/// # Errors
/// If there is no such model, or the download fails.
pub(crate) fn pull(global: &Global, settings: HubSettings, name: &ModelName) -> anyhow::Result<CachedModel> {
    let hub = Hub::new(settings);
    let watcher = DownloadBar::new(global);
    let plan = hub.plan(name, &watcher)?;
    log(global, plan.selection.notice.as_deref());
    log(global, Some(&summary(&plan, hub.endpoint())));
    let model = hub.download(&plan, &watcher);
    watcher.bar.finish_and_clear();
    Ok(model?)
}

fn summary(plan: &DownloadPlan, endpoint: &str) -> String {
    let files = match &plan.files[..] {
        [file] => file.path.clone(),
        files => format!("{} files", files.len()),
    };
    let (size, here) = (plan.size(), plan.cached_bytes());
    let from = match here {
        0 => format!("from {endpoint}"),
        _ if here == size => "already downloaded".to_owned(),
        _ => format!("from {endpoint}, {} already downloaded", human_bytes(here)),
    };
    format!("pulling {}: {files}, {}, {from}", plan.name, human_bytes(size))
}

/// Parses a repository name, unless the text can only be a path.
fn name(model: &str) -> anyhow::Result<ModelName> {
    let is_address = refrain_hub::is_hub_address(model);
    let is_path = model.contains('\\') || model.starts_with(['.', '/', '~']) || model.ends_with('/');
    let is_file = !model.contains(':') && (model.ends_with(".gguf") || model.ends_with(".safetensors"));
    if (is_path || is_file) && !is_address {
        bail!("model not found: {model:?}; {}", crate::model::MODEL_SYNTAX);
    }
    model.parse().map_err(|error| {
        anyhow!(
            "model not found: {model:?} is not a path, and {error}; {}",
            crate::model::MODEL_SYNTAX
        )
    })
}

fn not_cached(model: &str, name: &ModelName) -> anyhow::Error {
    if name.is_full() {
        anyhow!(
            "model not found: {model:?} is not a path and is not downloaded; `refrain pull {name}` downloads it from the \
             Hugging Face hub, `refrain doctor {name}` checks whether it fits this device"
        )
    } else {
        anyhow!(
            "model not found: {model:?} is not a path and is not downloaded (`refrain list` shows downloaded models); {}",
            crate::model::MODEL_SYNTAX
        )
    }
}

fn log(global: &Global, line: Option<&str>) {
    if let Some(line) = line.filter(|_| !global.quiet) {
        output::eprint_line(line);
    }
}

/// Shows download progress on terminals, and notices everywhere.
struct DownloadBar {
    bar: ProgressBar,
}

impl DownloadBar {
    fn new(global: &Global) -> Self {
        Self {
            bar: load::progress_bar(global, "downloading"),
        }
    }
}

impl Watcher for DownloadBar {
    fn progress(&self, done: u64, total: u64) {
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
            // Bytes downloaded earlier must not count towards the speed.
            self.bar.set_position(done);
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
    }

    fn notice(&self, line: &str) {
        // Printed even with --quiet, so that the user knows what the program is waiting for.
        self.bar.suspend(|| output::eprint_line(line));
    }
}
