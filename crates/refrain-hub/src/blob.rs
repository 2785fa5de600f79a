//! Downloading one file into the cache: resumed where an earlier attempt ended, checked, and named only
//! when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checksum::{Checksum, Hasher};
use crate::http::{Client, HubResponse, Request, broken_off};
use crate::retry::{Patience, Trouble};
use crate::watch::Meter;
use crate::{Error, HubSettings};

const BUFFER: usize = 256 << 10;

/// A file's content, as the hub has it and as it will lie in the cache.
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
    /// Where it goes.
    pub path: PathBuf,
}

impl Blob {
    /// Where its beginning lies until it is whole.
    pub fn incomplete(&self) -> PathBuf {
        incomplete(&self.path)
    }

    /// Whether it is in the cache.
    pub fn is_here(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.is_file() && found.len() == self.size)
    }

    /// Removes what interrupted downloads of it have left, by whatever program: all hold the blob's lock while
    /// they write. Best effort, since it only takes up room.
    fn remove_leftovers(&self) {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name().and_then(|name| name.to_str()))
        else {
            return;
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().and_then(unfinished) == Some(name) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Bytes that are in the cache.
    pub fn bytes_here(&self) -> u64 {
        if self.is_here() {
            return self.size;
        }
        let beginning = fs::metadata(self.incomplete()).map_or(0, |found| found.len());
        if beginning > self.size { 0 } else { beginning }
    }
}

/// The name of the blob of which a file with this name is the unfinished beginning: `HASH.incomplete` here,
/// `HASH.RANDOM.incomplete` of `huggingface_hub`.
pub(crate) fn unfinished(name: &str) -> Option<&str> {
    name.strip_suffix(".incomplete")?.split('.').next()
}

/// Where the beginning of the blob at `path` lies until it is whole.
pub(crate) fn incomplete(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".incomplete");
    path.with_file_name(name)
}

/// One download under way.
pub(crate) struct Download<'a> {
    pub client: &'a Client,
    pub settings: &'a HubSettings,
    pub blob: &'a Blob,
    pub meter: &'a Meter<'a>,
    /// Set when another file has failed: there is no use in going on.
    pub stop: &'a AtomicBool,
}

impl Download<'_> {
    /// Brings the blob into the cache. The caller holds its lock.
    ///
    /// # Errors
    /// If the hub does not have it, the network fails too often, what arrives is not what the hub lists,
    /// or the disk fails.
    pub fn run(&self) -> Result<(), Error> {
        if !self.blob.is_here() {
            self.fetch()?;
        }
        if self.blob.is_here() {
            self.blob.remove_leftovers();
        }
        Ok(())
    }

    fn fetch(&self) -> Result<(), Error> {
        let path = self.blob.incomplete();
        let mut partial = Partial::open(path, &self.blob.checksum, self.blob.size)?;
        let mut patience = Patience::new(&self.blob.name, self.settings.first_wait, self.meter.watcher());
        let mut second_try = false;
        loop {
            while partial.length < self.blob.size {
                let before = partial.length;
                let outcome = self.attempt(&mut partial);
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if partial.length > before {
                    patience.renew();
                }
                outcome.or_else(|trouble| patience.after(trouble))?;
            }
            let found = partial.digits()?;
            if found == self.blob.checksum.digits() {
                return partial.rename_to(&self.blob.path);
            }
            // The beginning may have been left damaged by an earlier attempt: the whole gets one more.
            partial.restart(self.meter)?;
            if second_try {
                partial.remove()?;
                return Err(self.damaged(format!(
                    "its content hashes to {found}, not to {}",
                    self.blob.checksum.digits()
                )));
            }
            second_try = true;
            let name = &self.blob.name;
            self.meter
                .watcher()
                .notice(&format!("{name}: what arrived is damaged; fetching it anew"));
        }
    }

    /// Appends what one answer of the server brings.
    fn attempt(&self, partial: &mut Partial) -> Result<(), Trouble> {
        let answer = self.client.get(&Request {
            url: &self.blob.url,
            what: &self.blob.name,
            repo: &self.blob.repo,
            from: partial.length,
            to: None,
        })?;
        self.check(&answer, partial)?;
        let mut body = answer.body;
        let mut buffer = vec![0; BUFFER];
        while !self.stop.load(Ordering::Relaxed) {
            let count = match body.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken_off(&error)),
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
            Err(Trouble::passing("the connection ended too early"))
        }
    }

    /// Compares what the answer says of itself with what the hub listed.
    fn check(&self, answer: &HubResponse, partial: &mut Partial) -> Result<(), Trouble> {
        match (answer.status, answer.range) {
            (206, Some((first, size))) if size == self.blob.size && first == partial.length => {}
            (206, Some((_, size))) if size != self.blob.size => {
                return Err(self.wrong_size(&format!("offers {size}")).into());
            }
            // Without ranges, everything comes again.
            (200, _) if partial.length == 0 => {}
            (200, _) => partial.restart(self.meter)?,
            _ => {
                partial.restart(self.meter)?;
                return Err(Trouble::passing("the server did not send the part that was asked for"));
            }
        }
        let expected = self.blob.size - partial.length;
        match answer.length {
            Some(length) if length != expected => Err(self.wrong_size(&format!("offers {length}")).into()),
            _ => Ok(()),
        }
    }

    fn wrong_size(&self, found: &str) -> Error {
        let size = self.blob.size;
        self.damaged(format!("the hub lists it with {size} bytes, but the server {found}"))
    }

    fn damaged(&self, reason: String) -> Error {
        let file = self.blob.name.clone();
        Error::Damaged { file, reason }
    }
}

/// The beginning of a file that is not whole yet, on disk and in the hash.
struct Partial<'a> {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: Option<Hasher>,
    checksum: &'a Checksum,
    size: u64,
}

impl<'a> Partial<'a> {
    /// Opens what an earlier attempt left, or begins.
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

    /// Hashes what is there.
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

    /// Begins anew, and takes what was there off the meter.
    fn restart(&mut self, meter: &Meter<'_>) -> Result<(), Error> {
        meter.take_back(self.length);
        self.clear()
    }

    fn clear(&mut self) -> Result<(), Error> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(Error::io("write", &self.path))?;
        self.length = 0;
        self.hasher = Some(self.checksum.hasher(self.size));
        Ok(())
    }

    /// The hash of the whole.
    fn digits(&mut self) -> Result<String, Error> {
        let length = self.file.metadata().map_err(Error::io("read", &self.path))?.len();
        // Two programs that both believe to hold the lock, as some network file systems let them, would
        // both have appended.
        match self.hasher.take().filter(|_| length == self.size) {
            Some(hasher) => Ok(hasher.finish()),
            None => Ok(format!("nothing: {length} bytes were written")),
        }
    }

    /// Gives it its name, once its content is safe on the disk.
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
