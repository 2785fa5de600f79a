//! Prefixes on disk: pages of keys and values, and recurrent states, which outlive the engine.
//!
//! Each page is a state file named by a hash of the model, the formats and all tokens up to its end. A second file holds
//! the recurrent states after it, if they were saved. Files are written completely or not at all, for this user alone,
//! and what is read is compared with the tokens themselves. Threads of their own read and write. What goes wrong there
//! is reported, and the prefix is computed.

mod files;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use refrain_formats::{AtomicFile, Plane, SnapshotKey, State, make_private_directory};
use xxhash_rust::xxh3::xxh3_128;

pub(super) use self::files::FileName;
use self::files::StoreFiles;
use super::PAGE_SIZE;
use super::pages::NodeId;
use crate::Error;

/// Files that wait to be written, from which no further prefix is stored, and files that are read ahead.
const QUEUED_FILES: usize = 4;

/// Where prefixes are stored, and how much of them.
#[derive(Clone, Debug)]
pub struct PrefixStoreOptions {
    /// The directory; it is created if necessary, for this user alone. Models, engines and processes may share it.
    pub directory: PathBuf,
    /// Limit of the bytes of all its files. The least recently used ones are removed.
    pub max_bytes: u64,
    /// Receives a line about what is wrong with the files, such as a full disk, once until it works again. It is called
    /// on other threads.
    pub warn: fn(&str),
}

impl PrefixStoreOptions {
    /// Creates the directory if necessary. For a check before models are loaded: engines go on without it.
    ///
    /// # Errors
    /// If it cannot be written to. A full disk is no error: there may be room later.
    pub fn create_directory(&self) -> Result<(), Error> {
        let write = |source| refrain_formats::Error::Write {
            path: self.directory.clone(),
            source,
        };
        let made = make_private_directory(&self.directory).map_err(write);
        match made.and_then(|()| AtomicFile::try_create(&self.directory.join("probe"))) {
            Err(refrain_formats::Error::Write { source, .. })
                if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                Ok(())
            }
            made => Ok(made?),
        }
    }
}

/// A file that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredFile {
    pub name: FileName,
    /// Tokens of the prefix.
    pub tokens: usize,
}

impl StoredFile {
    /// Whether it holds recurrent states.
    pub fn is_states(&self) -> bool {
        self.name.is_states
    }
}

/// What is known of a waiting request's prefix on disk.
#[derive(Default)]
pub(super) enum StoredPrefix {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It waits for it.
    Reading(PrefixRead),
    /// Nothing more is read for it.
    Done,
}

/// A prefix that is being read: a page after another, then the recurrent states.
pub(super) struct PrefixRead {
    pub files: Vec<StoredFile>,
    /// The planes of each file. It closes early if a file cannot be used.
    pub planes: Receiver<Vec<Plane>>,
    /// Files that have arrived.
    pub count: usize,
    /// The last page that is cached.
    pub node: Option<NodeId>,
    pub begun: Instant,
}

/// The stored prefixes of one model.
pub(super) struct PrefixStore {
    key: SnapshotKey,
    /// Files that can be read, or are being written.
    names: Arc<Mutex<HashSet<FileName>>>,
    reads: Sender<Read>,
    /// `None` once it is closed.
    writes: Option<Sender<(FileName, State)>>,
    /// Files that wait to be written.
    queued: Arc<AtomicUsize>,
    /// Closes once everything is written.
    written: Receiver<()>,
}

/// Files to read, and where their planes go.
struct Read {
    files: Vec<StoredFile>,
    tokens: Vec<u32>,
    planes: SyncSender<Vec<Plane>>,
}

impl PrefixStore {
    /// Opens the directory for prefixes with this key.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn open(options: &PrefixStoreOptions, key: SnapshotKey) -> Result<PrefixStore, Error> {
        let files = StoreFiles::open(options);
        let names = Arc::new(Mutex::new(files.names()));
        let (reads, to_read) = channel::<Read>();
        let (writes, to_write) = channel::<(FileName, State)>();
        let queued = Arc::<AtomicUsize>::default();
        let (finished, written) = channel();
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(work).map(drop).map_err(Error::Thread)
        };
        let (reader, known) = (files.clone(), names.clone());
        start(
            "prefix reads",
            Box::new(move || {
                to_read.iter().for_each(|read| read.run(&reader, &key, &known));
            }),
        )?;
        let (mut writer, known, waiting) = (files, names.clone(), queued.clone());
        start(
            "prefix writes",
            Box::new(move || {
                // It closes when this thread ends.
                let _finished: Sender<()> = finished;
                for (name, state) in to_write {
                    let forget = |name| {
                        lock(&known).remove(&name);
                    };
                    if writer.write(name, &state, forget) {
                        lock(&known).insert(name);
                    } else {
                        forget(name);
                    }
                    waiting.fetch_sub(1, Ordering::Relaxed);
                }
            }),
        )?;
        Ok(PrefixStore {
            key,
            names,
            reads,
            writes: Some(writes),
            queued,
            written,
        })
    }

    /// Returns the files that continue a prefix of `tokens` of which `known` tokens are cached, and `usable` tokens with
    /// everything that is needed to continue after them. The last of them can be continued after.
    pub fn find(&self, tokens: &[u32], (known, usable): (usize, usize), is_recurrent: bool) -> Vec<StoredFile> {
        let names = lock(&self.names);
        let (mut pages, mut found) = (vec![], vec![]);
        for (name, tokens) in self.prefixes(tokens) {
            let [page, states] = [name, name.states()].map(|name| StoredFile { name, tokens });
            if tokens > known {
                if !names.contains(&page.name) {
                    break;
                }
                pages.push(page);
            }
            if tokens <= usable {
                continue;
            }
            if !is_recurrent {
                found.clone_from(&pages);
            } else if names.contains(&states.name) {
                found = [&pages[..], &[states]].concat();
            }
        }
        found
    }

    /// Begins to read files that [`PrefixStore::find`] returned for `tokens`, the last cached page of which is `node`.
    pub fn read(&self, files: Vec<StoredFile>, tokens: &[u32], node: Option<NodeId>, begun: Instant) -> PrefixRead {
        let (sender, planes) = sync_channel(QUEUED_FILES);
        let read = Read {
            files: files.clone(),
            tokens: tokens.to_vec(),
            planes: sender,
        };
        // Without the thread, nothing arrives.
        let _ = self.reads.send(read);
        PrefixRead {
            files,
            planes,
            count: 0,
            node,
            begun,
        }
    }

    /// Returns the name of the last page of `tokens`, or of the states after it, unless that file exists.
    pub fn missing(&self, tokens: &[u32], is_states: bool) -> Option<FileName> {
        let (page, _) = self.prefixes(tokens).last()?;
        let name = if is_states { page.states() } else { page };
        (!lock(&self.names).contains(&name)).then_some(name)
    }

    /// Whether many files wait to be written.
    pub fn is_busy(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= QUEUED_FILES
    }

    /// Has a file written.
    pub fn write(&self, name: FileName, tokens: &[u32], planes: Vec<Plane>) {
        let state = State {
            key: self.key,
            tokens: tokens.to_vec(),
            planes,
        };
        let Some(writes) = &self.writes else { return };
        lock(&self.names).insert(name);
        self.queued.fetch_add(1, Ordering::Relaxed);
        if writes.send((name, state)).is_err() {
            // Without the thread, nothing is written.
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for at most `timeout`. Nothing is written after it.
    pub fn close(&mut self, timeout: Duration) -> bool {
        self.writes = None;
        matches!(self.written.recv_timeout(timeout), Err(RecvTimeoutError::Disconnected))
    }

    /// Returns the last page and the number of tokens of each prefix of whole pages.
    fn prefixes(&self, tokens: &[u32]) -> impl Iterator<Item = (FileName, usize)> {
        let key = &self.key;
        let mut bytes = key.model.to_le_bytes().to_vec();
        bytes.extend(key.rotation.to_le_bytes());
        bytes.extend(format!("{:?} {PAGE_SIZE}", key.cache).into_bytes());
        let root = xxh3_128(&bytes);
        let pages = tokens.chunks_exact(PAGE_SIZE).zip(1..);
        pages.scan(root, |prefix, (tokens, number)| {
            let mut bytes = prefix.to_le_bytes().to_vec();
            bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
            let before = std::mem::replace(prefix, xxh3_128(&bytes));
            let name = FileName {
                prefix: *prefix,
                before,
                is_states: false,
            };
            Some((name, number * PAGE_SIZE))
        })
    }
}

impl Read {
    /// Reads the files until one cannot be used, or nobody waits any more.
    fn run(self, files: &StoreFiles, key: &SnapshotKey, names: &Mutex<HashSet<FileName>>) {
        for file in self.files {
            let is_meant = |state: &State| state.key == *key && state.tokens == self.tokens[..file.tokens];
            let Some(state) = files.read(file.name, is_meant) else {
                lock(names).remove(&file.name);
                return;
            };
            if self.planes.send(state.planes).is_err() {
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
