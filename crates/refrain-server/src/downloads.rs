//! Model downloads on request of clients.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use crate::error::Refusal;
use crate::model_list::ModelList;
use crate::served::ServedModel;

/// Maximum number of events that wait for a slow reader. Then newer ones are dropped, except the last.
const MAX_PENDING: usize = 16;

/// Downloads models to this computer.
pub trait Downloader: Send + Sync {
    /// Downloads a model by the name that a client gives, reports progress to `report`, and opens the model so that it
    /// can be served under that name. May take hours: it is called on a thread of its own.
    ///
    /// # Errors
    /// If there is no model of that name, the download fails, or the model is not one that can be served.
    fn download(&self, model: &str, report: &(dyn Fn(DownloadNews) + Sync)) -> Result<ServedModel, DownloadFailure>;
}

/// The progress of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadNews {
    /// The revision of the model that is being downloaded.
    Found(String),
    /// Bytes so far, and bytes in all.
    Progress(u64, u64),
    /// A message about a delay or a change.
    Notice(String),
}

/// Why a model was not downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadFailure {
    /// The name is not that of a model.
    Name(String),
    /// The download failed.
    Failed(String),
}

/// Whether clients may have models downloaded.
#[derive(Clone)]
pub enum Downloads {
    /// They may not, for this reason.
    Refused(String),
    /// They may, one at a time.
    Allowed(Arc<dyn Downloader>, OneAtATime),
}

/// Lets one download run at a time.
#[derive(Clone, Debug)]
pub struct OneAtATime(Arc<Semaphore>);

impl Downloads {
    /// Allows downloads by `downloader`.
    pub fn by(downloader: impl Downloader + 'static) -> Downloads {
        Downloads::Allowed(Arc::new(downloader), OneAtATime(Arc::new(Semaphore::new(1))))
    }

    /// Starts a download, whose model is added to `models`. Returns its events; [`DownloadEvent::Ended`] is the last.
    /// It goes on if nobody listens.
    ///
    /// # Errors
    /// If downloads are not allowed, or another one is running.
    pub(crate) fn begin(&self, model: String, models: ModelList) -> Result<mpsc::Receiver<DownloadEvent>, Refusal> {
        let (downloader, one) = match self {
            Downloads::Refused(why) => return Err(Refusal::Forbidden(why.clone())),
            Downloads::Allowed(downloader, one) => (downloader.clone(), one),
        };
        let permit = one.0.clone().try_acquire_owned().map_err(|_| Refusal::Downloading)?;
        let (sender, events) = mpsc::channel(MAX_PENDING);
        tokio::task::spawn_blocking(move || {
            let report = |news| drop(sender.try_send(DownloadEvent::News(news)));
            let ended = downloader.download(&model, &report).map(|model| models.add(model));
            // A client that reads slowly does not block the next download.
            drop(permit);
            let _ = sender.blocking_send(DownloadEvent::Ended(ended));
        });
        Ok(events)
    }
}

/// An event of a download.
pub(crate) enum DownloadEvent {
    News(DownloadNews),
    /// It ended, with success or not.
    Ended(Result<(), DownloadFailure>),
}

impl From<DownloadFailure> for Refusal {
    fn from(failure: DownloadFailure) -> Refusal {
        match failure {
            DownloadFailure::Name(why) => Refusal::field("model", why),
            DownloadFailure::Failed(why) => Refusal::Download(why),
        }
    }
}

impl Debug for Downloads {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Downloads::Refused(_) => "Refused",
            Downloads::Allowed(..) => "Allowed",
        })
    }
}
