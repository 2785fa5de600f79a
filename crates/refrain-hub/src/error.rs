//! Errors of the hub, worded for the user.

use std::io;
use std::path::{Path, PathBuf};

/// Errors of finding, downloading and removing models.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of a model is malformed.
    #[error("invalid model name {name:?}: {reason} (use ORG/NAME, ORG/NAME:QUANT or ORG/NAME@REVISION)")]
    Name {
        /// The name given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An environment variable, or a file that it names, is invalid.
    #[error("{setting}: {reason}")]
    Setting {
        /// The variable or file.
        setting: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is not cached, and offline mode forbids requests.
    #[error("{name} is not in the cache, and offline mode (HF_HUB_OFFLINE) forbids downloading it")]
    Offline {
        /// The model.
        name: String,
    },
    /// Several cached models match the name.
    #[error("{name:?} is ambiguous: name one of {}", candidates.join(", "))]
    Ambiguous {
        /// The name given.
        name: String,
        /// The names that match.
        candidates: Vec<String>,
    },
    /// The repository does not have the requested files.
    #[error("{repo}: {reason}")]
    Selection {
        /// ORG/NAME.
        repo: String,
        /// What is missing or ambiguous, and the available choices.
        reason: String,
    },
    /// The hub does not have the model or file, or hides it from this user.
    #[error("{what}: {reason}")]
    NotFound {
        /// The model or file.
        what: String,
        /// What the hub said, and what to do.
        reason: String,
    },
    /// The hub denies access to this user.
    #[error("{what}: {reason}")]
    Denied {
        /// The model or file.
        what: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The network or the hub failed too often.
    #[error("{what}: {reason}; gave up after {attempts} attempts; run the same command again to resume the download")]
    GaveUp {
        /// The model or file.
        what: String,
        /// The last failure.
        reason: String,
        /// Number of consecutive failures.
        attempts: u32,
    },
    /// The hub's response is invalid.
    #[error("{what}: {reason}")]
    Response {
        /// The model or file.
        what: String,
        /// What is wrong with the response.
        reason: String,
    },
    /// The downloaded file does not match the hub's listing.
    #[error("{file}: {reason}; the download was discarded. If this happens again, a proxy may be altering files")]
    Damaged {
        /// The file's name in the repository.
        file: String,
        /// Which check failed.
        reason: String,
    },
    /// The disk has too little space.
    #[error("{} has {} free, and the download needs {} more; make room (`refrain list`, `refrain rm`) or set HF_HUB_CACHE to a directory on another disk", path.display(), human_bytes(*available), human_bytes(*needed))]
    NoSpace {
        /// The cache.
        path: PathBuf,
        /// Bytes still to download.
        needed: u64,
        /// Bytes free.
        available: u64,
    },
    /// Another program is downloading the model.
    #[error("{repo} is being downloaded by another program; try again when it has finished")]
    Busy {
        /// ORG/NAME.
        repo: String,
    },
    /// A file or directory of the cache cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write` …
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: wraps the operating system's error about `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Formats a size in MiB or GiB.
fn human_bytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}
