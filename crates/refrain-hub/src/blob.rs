//! Downloads one file into the cache.
//!
//! A [`Download`] resumes where an earlier attempt stopped and verifies the checksum. It gives the file its final
//! name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checksum::{Checksum, Hasher};
use crate::http::{Client, HubResponse, Request, body_error};
use crate::retry::{Backoff, Failure};
use crate::watch::ProgressMeter;
use crate::{Error, HubSettings};

const BUFFER: usize = 256 << 10;

/// One file's content: where to download it from and where the cache stores it.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    /// The file's name in the repository, for messages.
    pub name: String,
    /// ORG/NAME.
    pub repo: String,
    pub url: String,
    /// In bytes.
    pub size: u64,
    pub checksum: Checksum,
    /// Final path in the cache.
    pub path: PathBuf,
}

impl Blob {
    /// Path of the partial download.
    pub fn incomplete(&self) -> PathBuf {
        incomplete(&self.path)
    }

    /// Whether the cache holds the complete file.
    pub fn is_cached(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.is_file() && found.len() == self.size)
    }

    /// Removes partial downloads of this blob, by whatever program. Every program holds the blob's lock while it
    /// writes. Errors are ignored: leftovers only cost space.
    fn remove_leftovers(&self) {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name().and_then(|name| name.to_str()))
        else {
            return;
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().and_then(partial_of) == Some(name) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Bytes that the cache holds, complete or partial.
    pub fn cached_bytes(&self) -> u64 {
        if self.is_cached() {
            return self.size;
        }
        let prefix = fs::metadata(self.incomplete()).map_or(0, |found| found.len());
        if prefix > self.size { 0 } else { prefix }
    }
}

/// Returns the blob's name for a partial file's name: `HASH.incomplete` of this crate, or `HASH.RANDOM.incomplete` of
/// `huggingface_hub`.
pub(crate) fn partial_of(name: &str) -> Option<&str> {
    name.strip_suffix(".incomplete")?.split('.').next()
}

/// Path of the partial download of the blob at `path`.
pub(crate) fn incomplete(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".incomplete");
    path.with_file_name(name)
}

/// One download in progress.
pub(crate) struct Download<'a> {
    pub client: &'a Client,
    pub settings: &'a HubSettings,
    pub blob: &'a Blob,
    pub meter: &'a ProgressMeter<'a>,
    /// Set when another file has failed; this download then stops.
    pub stop: &'a AtomicBool,
}

impl Download<'_> {
    /// Downloads the blob into the cache. The caller holds its lock.
    ///
    /// # Errors
    /// If the hub does not have the file, the network fails too often, the content does not match the hub's listing,
    /// or the disk fails.
    pub fn run(&self) -> Result<(), Error> {
        if !self.blob.is_cached() {
            self.fetch()?;
        }
        if self.blob.is_cached() {
            self.blob.remove_leftovers();
        }
        Ok(())
    }

    fn fetch(&self) -> Result<(), Error> {
        let path = self.blob.incomplete();
        let mut partial = Partial::open(path, &self.blob.checksum, self.blob.size)?;
        let mut backoff = Backoff::new(&self.blob.name, self.settings.initial_backoff, self.meter.watcher());
        let mut second_try = false;
        loop {
            while partial.length < self.blob.size {
                let before = partial.length;
                let outcome = self.attempt(&mut partial);
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if partial.length > before {
                    backoff.reset();
                }
                outcome.or_else(|failure| backoff.wait_after(failure))?;
            }
            let found = partial.digits()?;
            if found == self.blob.checksum.digits() {
                return partial.rename_to(&self.blob.path);
            }
            // An earlier attempt may have left a corrupt prefix: start over once.
            partial.restart(self.meter)?;
            if second_try {
                partial.remove()?;
                return Err(self.damaged(format!("its hash is {found}, expected {}", self.blob.checksum.digits())));
            }
            second_try = true;
            let name = &self.blob.name;
            self.meter
                .watcher()
                .notice(&format!("{name}: the download is corrupt; downloading it again"));
        }
    }

    /// Appends the body of one response.
    fn attempt(&self, partial: &mut Partial) -> Result<(), Failure> {
        let response = self.client.get(&Request {
            url: &self.blob.url,
            what: &self.blob.name,
            repo: &self.blob.repo,
            from: partial.length,
            to: None,
        })?;
        self.check(&response, partial)?;
        let mut body = response.body;
        let mut buffer = vec![0; BUFFER];
        while !self.stop.load(Ordering::Relaxed) {
            let count = match body.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(body_error(&error)),
            };
            if count == 0 {
                break;
            }
            if count as u64 > self.blob.size - partial.length {
                partial.restart(self.meter)?;
                return Err(self.wrong_size("sends more").into());
            }
            partial.append(&buffer[..count])?;
            self.meter.add(count as u64);
        }
        if partial.length == self.blob.size {
            Ok(())
        } else {
            Err(Failure::transient("the connection closed early"))
        }
    }

    /// Checks the response's status, range and length against the hub's listing.
    fn check(&self, response: &HubResponse, partial: &mut Partial) -> Result<(), Failure> {
        match (response.status, response.range) {
            (206, Some((first, size))) if size == self.blob.size && first == partial.length => {}
            (206, Some((_, size))) if size != self.blob.size => {
                return Err(self.wrong_size(&format!("offers {size}")).into());
            }
            // The server ignored the range and sends the file from the start.
            (200, _) if partial.length == 0 => {}
            (200, _) => partial.restart(self.meter)?,
            _ => {
                partial.restart(self.meter)?;
                return Err(Failure::transient("the server did not send the requested range"));
            }
        }
        let expected = self.blob.size - partial.length;
        match response.length {
            Some(length) if length != expected => Err(self.wrong_size(&format!("offers {length}")).into()),
            _ => Ok(()),
        }
    }

    fn wrong_size(&self, found: &str) -> Error {
        let size = self.blob.size;
        self.damaged(format!("the hub lists {size} bytes, but the server {found}"))
    }

    fn damaged(&self, reason: String) -> Error {
        let file = self.blob.name.clone();
        Error::Damaged { file, reason }
    }
}

/// A partial file on disk, with the hash of what it holds so far.
struct Partial<'a> {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: Option<Hasher>,
    checksum: &'a Checksum,
    size: u64,
}

impl<'a> Partial<'a> {
    /// Opens what an earlier attempt left, or creates the file.
    fn open(path: PathBuf, checksum: &'a Checksum, size: u64) -> Result<Self, Error> {
        let options = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut partial = Self {
            file: options.map_err(Error::io("write", &path))?,
            path,
            length: 0,
            hasher: Some(checksum.hasher(size)),
            checksum,
            size,
        };
        partial.read_back()?;
        Ok(partial)
    }

    /// Hashes the bytes that are already on disk.
    fn read_back(&mut self) -> Result<(), Error> {
        let length = self.file.metadata().map_err(Error::io("read", &self.path))?.len();
        if length > self.size {
            return self.clear();
        }
        let mut buffer = vec![0; BUFFER];
        while self.length < length {
            let count = self.file.read(&mut buffer).map_err(Error::io("read", &self.path))?;
            if count == 0 {
                return self.clear();
            }
            self.hash(&buffer[..count]);
            self.length += count as u64;
        }
        Ok(())
    }

    fn hash(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))?;
        self.hash(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Discards the file's content and subtracts it from the meter.
    fn restart(&mut self, meter: &ProgressMeter<'_>) -> Result<(), Error> {
        meter.subtract(self.length);
        self.clear()
    }

    fn clear(&mut self) -> Result<(), Error> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(Error::io("write", &self.path))?;
        self.length = 0;
        self.hasher = Some(self.checksum.hasher(self.size));
        Ok(())
    }

    /// Returns the hash of the complete file.
    fn digits(&mut self) -> Result<String, Error> {
        let length = self.file.metadata().map_err(Error::io("read", &self.path))?.len();
        // On some network file systems two programs can both hold the lock, and both would have appended.
        match self.hasher.take().filter(|_| length == self.size) {
            Some(hasher) => Ok(hasher.finish()),
            None => Ok(format!("nothing: the file has {length} bytes")),
        }
    }

    /// Syncs the file to disk, then renames it.
    fn rename_to(self, path: &Path) -> Result<(), Error> {
        self.file.sync_all().map_err(Error::io("write", &self.path))?;
        drop(self.file);
        fs::rename(&self.path, path).map_err(Error::io("write", path))
    }

    fn remove(self) -> Result<(), Error> {
        drop(self.file);
        fs::remove_file(&self.path).map_err(Error::io("remove", &self.path))
    }
}
