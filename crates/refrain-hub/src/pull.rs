//! Downloading a model: find out what it consists of, fetch what is not here, and let it be found.

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
use crate::watch::Meter;
use crate::{Error, HubSettings, ModelName, Watcher};

/// Files that are downloaded at the same time.
const PARALLEL: usize = 4;

/// The hub, and the cache that downloads go to.
pub struct Hub {
    settings: HubSettings,
    client: Client,
    cache: HubCache,
}

/// What a model consists of, by the hub's answer.
#[derive(Debug)]
pub struct DownloadPlan {
    /// The model.
    pub name: ModelName,
    /// The commit that its revision means now.
    pub commit: String,
    /// Which files were chosen.
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

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.blob.url
    }
}

impl DownloadPlan {
    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        sum(self.files.iter().map(PlannedFile::size))
    }

    /// Bytes that are here already.
    pub fn bytes_here(&self) -> u64 {
        sum(self.contents().values().map(|blob| blob.bytes_here()))
    }

    /// The contents, each once.
    fn contents(&self) -> BTreeMap<&str, &Blob> {
        let blobs = self.files.iter().map(|file| &file.blob);
        blobs.map(|blob| (blob.checksum.digits(), blob)).collect()
    }
}

impl Hub {
    /// Prepares requests, and makes none.
    pub fn new(settings: HubSettings) -> Self {
        Self {
            client: Client::new(&settings),
            cache: HubCache::new(&settings.cache),
            settings,
        }
    }

    /// The address of the hub.
    pub fn endpoint(&self) -> &str {
        &self.settings.endpoint
    }

    /// Bytes free on the disk of the cache, where the system tells.
    pub fn free_space(&self) -> Option<u64> {
        let folder = self.cache.root().ancestors().find(|folder| folder.is_dir())?;
        fs4::available_space(folder).ok()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// How long to wait after a first failure.
    pub(crate) fn first_wait(&self) -> Duration {
        self.settings.first_wait
    }

    /// Asks the hub which files the model consists of. Downloads none.
    ///
    /// # Errors
    /// If there is no such model, it has nothing that this program reads, several of its files may be
    /// meant, the hub refuses or cannot be reached, or requests are forbidden.
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
        let selection = select::select(&listing.files, name.quant.as_deref()).map_err(|none| Error::Choice {
            repo: name.repo.clone(),
            reason: none.reason(),
        })?;
        let repository = self.cache.repository(&name.repo);
        let plan = |path: &String| {
            let entry = listing.files.iter().zip(&listing.checksums);
            let found = entry.into_iter().find(|(file, _)| file.path == *path);
            let Some((file, Some(checksum))) = found else {
                return Err(Error::Answer {
                    what: name.to_string(),
                    reason: format!("{} gives no checksum of {path}", self.settings.endpoint),
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

    /// Downloads what is not here yet. What arrives is checked and named by its content; the model is
    /// found only when all of it is here. After an interruption, the next call goes on from there.
    ///
    /// # Errors
    /// If the network or the hub fails more often than is worth trying again, what arrives is not what
    /// the hub lists, or the disk is full or fails.
    pub fn download(&self, plan: &DownloadPlan, watcher: &dyn Watcher) -> Result<CachedModel, Error> {
        let repository = self.cache.repository(&plan.name.repo);
        let _lock = Lock::wait(&repository.lock(), &plan.name.repo, watcher)?;
        let folder = repository.blobs();
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let contents = missing(&repository, plan);
        let total = sum(contents.iter().map(|blob| blob.size));
        let here = sum(contents.iter().map(|blob| blob.bytes_here()));
        check_space(&folder, total.saturating_sub(here), fs4::available_space(&folder).ok())?;
        self.fetch_all(&repository, &contents, &Meter::new(watcher, here, total))?;
        self.place(&repository, plan)?;
        repository.set_ref(plan.name.revision(), &plan.commit)?;
        Ok(repository.model(plan.name.clone(), &plan.commit, &plan.selection))
    }

    /// Makes the files of the snapshot, weights last.
    fn place(&self, repository: &Repository, plan: &DownloadPlan) -> Result<(), Error> {
        for file in &plan.files {
            if is_copied(repository, plan, file) {
                continue;
            }
            let same =
                |other: &&PlannedFile| other.blob.checksum == file.blob.checksum && is_copied(repository, plan, other);
            match plan.files.iter().find(same).filter(|_| !file.blob.is_here()) {
                Some(other) => repository.copy(&plan.commit, &other.path, &file.path)?,
                None => repository.place(&file.blob.path, &plan.commit, &file.path, self.settings.links)?,
            }
        }
        repository.sync(&plan.commit);
        Ok(())
    }

    /// Fetches several contents at a time; the first failure ends all.
    fn fetch_all(&self, repository: &Repository, blobs: &[&Blob], meter: &Meter<'_>) -> Result<(), Error> {
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
            for _ in 0..blobs.len().min(PARALLEL) {
                scope.spawn(work);
            }
        });
        let failure = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        failure.map_or(Ok(()), Err)
    }
}

/// The contents that no file of the snapshot holds yet. What lies among the blobs is among them, and
/// takes no time.
fn missing<'a>(repository: &Repository, plan: &'a DownloadPlan) -> Vec<&'a Blob> {
    let mut missing = plan.contents();
    for file in plan.files.iter().filter(|file| is_copied(repository, plan, file)) {
        missing.remove(file.blob.checksum.digits());
    }
    missing.into_values().collect()
}

/// Whether a file's content lies in the snapshot itself, as it does on systems without links.
fn is_copied(repository: &Repository, plan: &DownloadPlan, file: &PlannedFile) -> bool {
    let found = fs::symlink_metadata(repository.pointer(&plan.commit, &file.path));
    found.is_ok_and(|found| found.is_file() && found.len() == file.blob.size)
}

/// The sum of sizes, which may be anything that a server says: no less than it is where it has no number.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Refuses a download for which there is no room. Where the system does not tell, it is tried.
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
    fn sizes_beyond_all_numbers_are_no_small_ones() {
        assert_eq!(sum([1, 2, 3].into_iter()), 6);
        let needed = sum([u64::MAX - 4, 8, 1 << 40].into_iter());
        assert!(check_space(Path::new("x"), needed, Some(1 << 50)).is_err());
    }

    #[test]
    fn a_download_that_cannot_fit_is_refused_before_it_begins() {
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
