//! Models that are brought to this computer when clients ask.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::Refusal;

/// News that may wait for a slow reader; what is newer then is passed over, but for the end.
const NEWS: usize = 16;

/// Brings models to this computer. Whoever is asked may take hours, on a thread of its own.
pub trait Downloader: Send + Sync {
    /// Brings a model here, by the name that a client gives; `told` hears how far it is.
    ///
    /// # Errors
    /// What is no name of a model there, and downloads that fail.
    fn download(&self, model: &str, told: &(dyn Fn(DownloadNews) + Sync)) -> Result<(), DownloadFailure>;
}

/// How far a download is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadNews {
    /// What is to be fetched is known: this state of the model.
    Found(String),
    /// So many of so many bytes are here.
    Progress(u64, u64),
    /// Something that takes time or changes what comes.
    Notice(String),
}

/// Why a model was not brought here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadFailure {
    /// This is no model's name.
    Name(String),
    /// The download failed.
    Failed(String),
}

/// Whether clients may have models brought here.
#[derive(Clone)]
pub enum Downloads {
    /// They may not, for the reason given.
    Refused(String),
    /// They may, one at a time.
    Allowed(Arc<dyn Downloader>, OneAtATime),
}

/// Lets one pass at a time.
#[derive(Clone, Debug)]
pub struct OneAtATime(Arc<Semaphore>);

impl Downloads {
    /// By whoever brings them.
    pub fn by(downloader: impl Downloader + 'static) -> Downloads {
        Downloads::Allowed(Arc::new(downloader), OneAtATime(Arc::new(Semaphore::new(1))))
    }

    /// Begins to bring a model here; what is heard of it ends with its end. It goes on if nobody listens.
    ///
    /// # Errors
    /// If clients may not, or another download is under way.
    pub(crate) fn begin(&self, model: String) -> Result<mpsc::Receiver<Heard>, Refusal> {
        let (downloader, one) = match self {
            Downloads::Refused(why) => return Err(Refusal::Forbidden(why.clone())),
            Downloads::Allowed(downloader, one) => (downloader.clone(), one),
        };
        let place = one.0.clone().try_acquire_owned().map_err(|_| Refusal::Downloading)?;
        let (news, heard) = mpsc::channel(NEWS);
        tokio::task::spawn_blocking(move || download(&*downloader, &model, &news, place));
        Ok(heard)
    }
}

/// What is heard of a download.
pub(crate) enum Heard {
    News(DownloadNews),
    /// It is over, well or not.
    Ended(Result<(), DownloadFailure>),
}

fn download(downloader: &dyn Downloader, model: &str, news: &mpsc::Sender<Heard>, place: OwnedSemaphorePermit) {
    let told = |said| drop(news.try_send(Heard::News(said)));
    let ended = downloader.download(model, &told);
    // Who is slow to hear of it keeps nobody from theirs.
    drop(place);
    let _ = news.blocking_send(Heard::Ended(ended));
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
