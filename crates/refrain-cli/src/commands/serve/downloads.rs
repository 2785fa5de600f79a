//! Model downloads on behalf of clients (Ollama's `/api/pull`).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use refrain_hub::{Hub, HubSettings, ModelName, Watcher};
use refrain_server::{DownloadFailure, DownloadNews, Downloader, ServedModel};

use super::models::ModelOpener;
use super::names::ModelNames;
use crate::output::human_bytes;

/// The error for clients if downloads are not allowed.
pub(super) const NOT_ALLOWED: &str = "downloads are disabled on this server; its operator can start it with \
                                      --allow-pull, or download the model with `refrain pull` and serve it";
/// Bytes of the cache's disk that stay free: clients must not fill it.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// Minimum time between progress reports.
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Downloads models from the Hugging Face hub into its cache, and opens them.
pub(super) struct HubDownloader {
    pub settings: HubSettings,
    pub opener: ModelOpener,
}

impl Downloader for HubDownloader {
    fn download(&self, model: &str, report: &(dyn Fn(DownloadNews) + Sync)) -> Result<ServedModel, DownloadFailure> {
        let name: Result<ModelName, _> = model.parse();
        let name = name.map_err(|error| DownloadFailure::Name(error.to_string()))?;
        if !name.is_full() {
            let why =
                format!("not a Hugging Face model: {model:?}; name one as hf.co/ORG/NAME or hf.co/ORG/NAME:QUANT");
            return Err(DownloadFailure::Name(why));
        }
        let hub = Hub::new(self.settings.clone());
        let reporter = ProgressReporter {
            report,
            last: Mutex::new(None),
        };
        let failed = |error: refrain_hub::Error| DownloadFailure::Failed(error.to_string());
        let plan = hub.plan(&name, &reporter).map_err(failed)?;
        check_space(plan.size().saturating_sub(plan.cached_bytes()), hub.free_space())?;
        report(DownloadNews::Found(plan.commit.clone()));
        if let Some(notice) = &plan.selection.notice {
            report(DownloadNews::Notice(notice.clone()));
        }
        let cached = hub.download(&plan, &reporter).map_err(failed)?;
        report(DownloadNews::Progress(plan.size(), plan.size()));
        let opened = self.opener.open(names(model), &cached.path);
        opened.map_err(|error| {
            DownloadFailure::Failed(format!("the model is downloaded, but cannot be served: {error:#}"))
        })
    }
}

/// The names of a downloaded model: as the client called it, with and without the hub's address.
fn names(model: &str) -> ModelNames {
    let name = model.strip_prefix("hf.co/").unwrap_or(model).to_owned();
    let aliases = vec![format!("hf.co/{name}")];
    ModelNames { name, aliases }
}

/// Returns an error if a download would leave less free space than [`MIN_FREE_BYTES`]. An unknown amount is not one.
fn check_space(needed: u64, available: Option<u64>) -> Result<(), DownloadFailure> {
    match available {
        Some(available) if needed > 0 && available.saturating_sub(MIN_FREE_BYTES) < needed => {
            let [needed, available, reserve] = [needed, available, MIN_FREE_BYTES].map(human_bytes);
            Err(DownloadFailure::Failed(format!(
                "the model needs {needed} on the server's disk, which has {available} free and keeps {reserve} of that"
            )))
        }
        _ => Ok(()),
    }
}

/// Reports download progress at a limited rate.
struct ProgressReporter<'t> {
    report: &'t (dyn Fn(DownloadNews) + Sync),
    last: Mutex<Option<Instant>>,
}

impl Watcher for ProgressReporter<'_> {
    fn progress(&self, done: u64, total: u64) {
        let Ok(mut last) = self.last.lock() else { return };
        if last.is_none_or(|last| last.elapsed() >= MIN_REPORT_INTERVAL) {
            *last = Some(Instant::now());
            (self.report)(DownloadNews::Progress(done, total));
        }
    }

    fn notice(&self, line: &str) {
        (self.report)(DownloadNews::Notice(line.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_leave_room_on_the_disk() {
        assert_eq!(check_space(5, None), Ok(()));
        assert_eq!(check_space(5, Some(MIN_FREE_BYTES + 5)), Ok(()));
        assert_eq!(check_space(0, Some(0)), Ok(()), "a cached model needs nothing");
        for (needed, available) in [(5, MIN_FREE_BYTES + 4), (u64::MAX, u64::MAX)] {
            let error = check_space(needed, Some(available)).unwrap_err();
            assert!(
                matches!(error, DownloadFailure::Failed(why) if why.contains("free")),
                "{needed}"
            );
        }
    }
}
