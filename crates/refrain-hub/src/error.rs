//! What can go wrong with models of the hub, in the user's language.

use std::io;
use std::path::{Path, PathBuf};

/// Everything that finding, downloading or removing a model can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of a model is malformed.
    #[error(
        "{name:?} is no name of a model on the hub: {reason} (names are ORG/NAME, ORG/NAME:QUANT or ORG/NAME@REVISION)"
    )]
    Name {
        /// The name given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting in the environment, or a file that it names, cannot be used.
    #[error("{setting}: {reason}")]
    Setting {
        /// The variable or file.
        setting: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A request is needed, and requests are forbidden.
    #[error(
        "{name} is not in the cache, and this is offline mode (asked for, or by HF_HUB_OFFLINE): no request is made"
    )]
    Offline {
        /// The model.
        name: String,
    },
    /// Several models of the cache have this name.
    #[error("{name:?} may be any of these in the cache: {}", candidates.join(", "))]
    Ambiguous {
        /// The name given.
        name: String,
        /// The names that it fits.
        candidates: Vec<String>,
    },
    /// The repository does not have what was asked for.
    #[error("{repo}: {reason}")]
    Choice {
        /// ORG/NAME.
        repo: String,
        /// What is missing or ambiguous, and what there is.
        reason: String,
    },
    /// The hub does not have it, or does not say so to this user.
    #[error("{what}: {reason}")]
    NotFound {
        /// The model or file.
        what: String,
        /// What the hub said, and what to do.
        reason: String,
    },
    /// The hub refuses this user.
    #[error("{what}: {reason}")]
    Denied {
        /// The model or file.
        what: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The network or the hub failed more often than is worth trying again.
    #[error(
        "{what}: {reason}; gave up after {attempts} attempts; the same command tries again, and keeps what has arrived"
    )]
    GaveUp {
        /// What was being done.
        what: String,
        /// The last failure.
        reason: String,
        /// How many failures in a row there were.
        attempts: u32,
    },
    /// The hub answered what makes no sense.
    #[error("{what}: {reason}")]
    Answer {
        /// The request.
        what: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// A file arrived whole but is not the one that the hub lists.
    #[error(
        "{file}: {reason}; it was not kept. If this happens again, something between here and the hub changes files"
    )]
    Damaged {
        /// The file's name in the repository.
        file: String,
        /// Which check failed.
        reason: String,
    },
    /// The disk has too little room.
    #[error("{} has {} free, and the download needs {} more; make room (`refrain list`, `refrain rm`) or set HF_HUB_CACHE to a directory on another disk", path.display(), human_bytes(*available), human_bytes(*needed))]
    NoSpace {
        /// The cache.
        path: PathBuf,
        /// Bytes still to download.
        needed: u64,
        /// Bytes free.
        available: u64,
    },
    /// The model is being downloaded by some program.
    #[error("{repo} is being downloaded by another program; try again when that has ended")]
    Busy {
        /// ORG/NAME.
        repo: String,
    },
    /// A file or directory of the cache cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write` …
        action: &'static str,
        /// What it was about.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: what the operating system said about `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Bytes as people read them.
fn human_bytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}
