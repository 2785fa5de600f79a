//! Downloads a model: plan the files, fetch the missing ones, and publish the snapshot.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::blob::{Blob, Download};
use crate::cache::{CachedModel, HubCache, Lock, Repository};
use crate::http::Client;
use crate::listing::{self, file_url};
use crate::select::{self, Selection};
use crate::watch::ProgressMeter;
use crate::{Error, HubSettings, ModelName, Watcher};

/// Maximum number of concurrent downloads.
const MAX_CONCURRENT_DOWNLOADS: usize = 4;

/// The hub's client, and the cache that it downloads to.
pub struct Hub {
    settings: HubSettings,
    client: Client,
    cache: HubCache,
}

/// The files of a model, from the hub's listing.
#[derive(Debug)]
pub struct DownloadPlan {
    /// The model.
    pub name: ModelName,
    /// The commit of its revision at the time of the request.
    pub commit: String,
    /// The selected files.
    pub selection: Selection,
    /// Those files, in the order of `selection.files`.
    pub files: Vec<PlannedFile>,
}

/// A file of a model.
#[derive(Debug)]
pub struct PlannedFile {
    /// Its path in the repository.
    pub path: String,
    blob: Blob,
}

impl PlannedFile {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.blob.size
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.blob.url
    }
}

impl DownloadPlan {
    /// Total size of all files in bytes.
    pub fn size(&self) -> u64 {
        sum(self.files.iter().map(PlannedFile::size))
    }

    /// Bytes that are already in the cache.
    pub fn cached_bytes(&self) -> u64 {
        sum(self.contents().values().map(|blob| blob.cached_bytes()))
    }

    /// The distinct blobs.
    fn contents(&self) -> BTreeMap<&str, &Blob> {
        let blobs = self.files.iter().map(|file| &file.blob);
        blobs.map(|blob| (blob.checksum.digits(), blob)).collect()
    }
}

impl Hub {
    /// Creates a client. Makes no request.
    pub fn new(settings: HubSettings) -> Self {
        Self {
            client: Client::new(&settings),
            cache: HubCache::new(&settings.cache),
            settings,
        }
    }

    /// The hub's URL.
    pub fn endpoint(&self) -> &str {
        &self.settings.endpoint
    }

    /// Free bytes on the cache's disk, if the system reports them.
    pub fn free_space(&self) -> Option<u64> {
        let folder = self.cache.root().ancestors().find(|folder| folder.is_dir())?;
        fs4::available_space(folder).ok()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Wait after the first failure.
    pub(crate) fn initial_backoff(&self) -> Duration {
        self.settings.initial_backoff
    }

    /// Requests the list of the model's files. Downloads none.
    ///
    /// # Errors
    /// If there is no such model, it has no supported files, its name is ambiguous, the hub refuses or cannot be
    /// reached, or offline mode is on.
    pub fn plan(&self, name: &ModelName, watcher: &dyn Watcher) -> Result<DownloadPlan, Error> {
        if !name.is_full() {
            return Err(Error::Name {
                name: name.to_string(),
                reason: "the organisation is missing".to_owned(),
            });
        }
        if self.settings.offline {
            let name = name.to_string();
            return Err(Error::Offline { name });
        }
        let listing = listing::fetch(&self.settings, &self.client, name, watcher)?;
        let selection = select::select(&listing.files, name.quant.as_deref()).map_err(|none| Error::Selection {
            repo: name.repo.clone(),
            reason: none.reason(),
        })?;
        let repository = self.cache.repository(&name.repo);
        let plan = |path: &String| {
            let entry = listing.files.iter().zip(&listing.checksums);
            let found = entry.into_iter().find(|(file, _)| file.path == *path);
            let Some((file, Some(checksum))) = found else {
                return Err(Error::Response {
                    what: name.to_string(),
                    reason: format!("{} lists no checksum for {path}", self.settings.endpoint),
                });
            };
            let blob = Blob {
                name: path.clone(),
                repo: name.repo.clone(),
                url: file_url(&self.settings.endpoint, &name.repo, &listing.commit, path),
                size: file.size,
                path: repository.blobs().join(checksum.digits()),
                checksum: checksum.clone(),
            };
            let path = path.clone();
            Ok(PlannedFile { path, blob })
        };
        Ok(DownloadPlan {
            files: selection.files.iter().map(plan).collect::<Result<_, _>>()?,
            name: name.clone(),
            commit: listing.commit,
            selection,
        })
    }

    /// Downloads the missing files. Each file's checksum is verified. The model becomes visible only when it is
    /// complete. After an interruption, the next call resumes the download.
    ///
    /// # Errors
    /// If the network or the hub fails too often, a file does not match the hub's listing, or the disk is full or
    /// fails.
    pub fn download(&self, plan: &DownloadPlan, watcher: &dyn Watcher) -> Result<CachedModel, Error> {
        let repository = self.cache.repository(&plan.name.repo);
        let _lock = Lock::wait(&repository.lock(), &plan.name.repo, watcher)?;
        let folder = repository.blobs();
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let contents = missing(&repository, plan);
        let total = sum(contents.iter().map(|blob| blob.size));
        let here = sum(contents.iter().map(|blob| blob.cached_bytes()));
        check_space(&folder, total.saturating_sub(here), fs4::available_space(&folder).ok())?;
        self.fetch_all(&repository, &contents, &ProgressMeter::new(watcher, here, total))?;
        self.publish(&repository, plan)?;
        repository.set_ref(plan.name.revision(), &plan.commit)?;
        Ok(repository.model(plan.name.clone(), &plan.commit, &plan.selection))
    }

    /// Creates the files of the snapshot, weights last.
    fn publish(&self, repository: &Repository, plan: &DownloadPlan) -> Result<(), Error> {
        for file in &plan.files {
            if is_copied(repository, plan, file) {
                continue;
            }
            let same =
                |other: &&PlannedFile| other.blob.checksum == file.blob.checksum && is_copied(repository, plan, other);
            match plan.files.iter().find(same).filter(|_| !file.blob.is_cached()) {
                Some(other) => repository.copy(&plan.commit, &other.path, &file.path)?,
                None => repository.publish(&file.blob.path, &plan.commit, &file.path, self.settings.links)?,
            }
        }
        repository.sync(&plan.commit);
        Ok(())
    }

    /// Downloads blobs concurrently; the first failure stops all.
    fn fetch_all(&self, repository: &Repository, blobs: &[&Blob], meter: &ProgressMeter<'_>) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let work = || {
            while let Some(blob) = blobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let client = &self.client;
                let settings = &self.settings;
                let stop = &stop;
                let download = Download {
                    client,
                    settings,
                    blob,
                    meter,
                    stop,
                };
                let lock = repository.blob_lock(blob.checksum.digits());
                let done = Lock::wait(&lock, &blob.name, meter.watcher()).and_then(|_held| download.run());
                if let Err(error) = done {
                    stop.store(true, Ordering::Relaxed);
                    let mut failure = failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    failure.get_or_insert(error);
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..blobs.len().min(MAX_CONCURRENT_DOWNLOADS) {
                scope.spawn(work);
            }
        });
        let failure = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        failure.map_or(Ok(()), Err)
    }
}

/// The blobs that no file of the snapshot holds yet. Includes blobs that are already cached; those take no time.
fn missing<'a>(repository: &Repository, plan: &'a DownloadPlan) -> Vec<&'a Blob> {
    let mut missing = plan.contents();
    for file in plan.files.iter().filter(|file| is_copied(repository, plan, file)) {
        missing.remove(file.blob.checksum.digits());
    }
    missing.into_values().collect()
}

/// Whether the snapshot itself holds the file's content, as on systems without links.
fn is_copied(repository: &Repository, plan: &DownloadPlan, file: &PlannedFile) -> bool {
    let found = fs::symlink_metadata(repository.pointer(&plan.commit, &file.path));
    found.is_ok_and(|found| found.is_file() && found.len() == file.blob.size)
}

/// Sums sizes, saturating: a server can send any sizes.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Returns an error if there is too little space. An unknown amount is not an error.
fn check_space(folder: &std::path::Path, needed: u64, available: Option<u64>) -> Result<(), Error> {
    match available {
        Some(available) if available < needed => Err(Error::NoSpace {
            path: folder.to_owned(),
            needed,
            available,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn sum_of_sizes_saturates() {
        assert_eq!(sum([1, 2, 3].into_iter()), 6);
        let needed = sum([u64::MAX - 4, 8, 1 << 40].into_iter());
        assert!(check_space(Path::new("x"), needed, Some(1 << 50)).is_err());
    }

    #[test]
    fn rejects_downloads_larger_than_the_free_space() {
        assert!(check_space(Path::new("x"), 5, Some(5)).is_ok());
        assert!(check_space(Path::new("x"), 5, None).is_ok());
        let error = check_space(Path::new("x"), 3 << 30, Some(5 << 20))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("5.0 MiB free") && error.contains("3.0 GiB more") && error.contains("HF_HUB_CACHE"),
            "{error}"
        );
    }
}
