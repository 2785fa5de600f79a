//! Models that clients have brought here.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use refrain_hub::{Hub, HubSettings, ModelName, Watcher};
use refrain_server::{DownloadFailure, DownloadNews, Downloader};

/// What clients hear of a server whose user did not allow it.
pub(super) const REFUSED: &str = "this server downloads nothing: whoever runs it may start it with --allow-pull, or \
                                  download the model by `refrain pull` and serve it";
/// The least time between two figures.
const PACE: Duration = Duration::from_millis(100);

/// Brings models from the Hugging Face hub into its cache.
pub(super) struct HubDownloader(pub HubSettings);

impl Downloader for HubDownloader {
    fn download(&self, model: &str, told: &(dyn Fn(DownloadNews) + Sync)) -> Result<(), DownloadFailure> {
        let name: Result<ModelName, _> = model.parse();
        let name = name.map_err(|error| DownloadFailure::Name(error.to_string()))?;
        if !name.is_full() {
            let why = format!(
                "{model:?} is no model of the Hugging Face hub; name one as hf.co/ORG/NAME or hf.co/ORG/NAME:QUANT"
            );
            return Err(DownloadFailure::Name(why));
        }
        let hub = Hub::new(self.0.clone());
        let teller = Teller {
            told,
            last: Mutex::new(None),
        };
        let failed = |error: refrain_hub::Error| DownloadFailure::Failed(error.to_string());
        let plan = hub.plan(&name, &teller).map_err(failed)?;
        told(DownloadNews::Found(plan.commit.clone()));
        if let Some(notice) = &plan.selection.notice {
            told(DownloadNews::Notice(notice.clone()));
        }
        hub.download(&plan, &teller).map_err(failed)?;
        told(DownloadNews::Progress(plan.size(), plan.size()));
        Ok(())
    }
}

/// Tells how far a download is, now and then.
struct Teller<'t> {
    told: &'t (dyn Fn(DownloadNews) + Sync),
    last: Mutex<Option<Instant>>,
}

impl Watcher for Teller<'_> {
    fn progress(&self, done: u64, total: u64) {
        let Ok(mut last) = self.last.lock() else { return };
        if last.is_none_or(|last| last.elapsed() >= PACE) {
            *last = Some(Instant::now());
            (self.told)(DownloadNews::Progress(done, total));
        }
    }

    fn notice(&self, line: &str) {
        (self.told)(DownloadNews::Notice(line.to_owned()));
    }
}
