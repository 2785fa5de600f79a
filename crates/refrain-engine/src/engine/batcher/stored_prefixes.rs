//! Prefixes on disk: what a waiting request finds there is read into pages before it is admitted, and what is cached is
//! stored while there are no requests.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use refrain_formats::Plane;

use super::{Batcher, PAGE_SIZE, Runner, Running};
use crate::Error;
use crate::engine::IDLE_BEFORE_WORK;
use crate::engine::prefix_store::{PrefixRead, PrefixStore, StoredFile, StoredPrefix};
use crate::engine::prefix_times::PrefixTimes;

/// Wait for a file while there is nothing else to do.
const READ_WAIT: Duration = Duration::from_millis(5);
/// Files whose contents a step writes to the device while requests run, and while none does.
const MAX_FILES_PER_STEP: usize = 2;
const MAX_FILES_PER_IDLE_STEP: usize = 16;
/// Wait until a file is written while too many others wait for that.
const WRITE_WAIT: Duration = Duration::from_millis(5);
/// Longest time that writing takes after the last request.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The store of a batch, and how the batch uses it.
pub(super) struct AttachedStore {
    store: PrefixStore,
    times: PrefixTimes,
    /// How long there must be no request until more is stored.
    wait_to_store: Duration,
    /// Files whose contents the current step may still write to the device.
    files_left: usize,
    /// Whether the current step may still wait for a file.
    may_wait: bool,
}

impl<R: Runner> Batcher<R> {
    /// Keeps prefixes in a store.
    pub(super) fn keep_prefixes_in(&mut self, store: PrefixStore) {
        self.pool.record_unstored();
        self.store = Some(AttachedStore {
            store,
            times: PrefixTimes::default(),
            wait_to_store: IDLE_BEFORE_WORK,
            files_left: 0,
            may_wait: false,
        });
    }

    /// Limits what the next step does with the store.
    pub(super) fn begin_step_of_store(&mut self) {
        let is_idle = self.running().next().is_none() && self.in_flight.is_empty();
        if let Some(attached) = &mut self.store {
            attached.wait_to_store = IDLE_BEFORE_WORK;
            attached.may_wait = is_idle;
            attached.files_left = if is_idle {
                MAX_FILES_PER_IDLE_STEP
            } else {
                MAX_FILES_PER_STEP
            };
        }
    }

    /// Whether the waiting request at `index` waits for a prefix from disk.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn awaits_stored(&mut self, index: usize) -> Result<bool, Error> {
        if self.store.is_none() {
            return Ok(false);
        }
        match std::mem::replace(&mut self.queue[index].stored, StoredPrefix::Done) {
            StoredPrefix::Unknown => Ok(self.begin_read(index)),
            StoredPrefix::Reading(read) => self.continue_read(index, read),
            StoredPrefix::Done => Ok(false),
        }
    }

    /// Begins to read what the disk has of a request's prefix; returns whether the request waits for it.
    fn begin_read(&mut self, index: usize) -> bool {
        let request = &self.queue[index];
        let tokens = &request.tokens[..request.reusable()];
        let (known, usable, node) = self.pool.known(tokens);
        let Some(AttachedStore { store, times, .. }) = &mut self.store else {
            return false;
        };
        let files = store.find(tokens, (known, usable), self.runner.is_recurrent());
        let Some(first) = files.first() else { return false };
        let is_being_read = self.queue.iter().any(|other| match &other.stored {
            StoredPrefix::Reading(read) => read.files.contains(first),
            _ => false,
        });
        if !is_being_read && !times.reading_pays() {
            return false;
        }
        // What another request reads is found in the pages later.
        self.queue[index].stored = if is_being_read {
            StoredPrefix::Unknown
        } else {
            StoredPrefix::Reading(store.read(files, tokens, node, self.runner.now()))
        };
        true
    }

    /// Takes what has been read into pages; returns whether more is to come.
    fn continue_read(&mut self, index: usize, mut read: PrefixRead) -> Result<bool, Error> {
        while let Some(attached) = &mut self.store {
            let Some(&file) = read.files.get(read.count) else {
                let pages = read.files.iter().filter(|file| !file.is_states()).count();
                let took = self.runner.now().saturating_duration_since(read.begun);
                attached.times.note_read(took, PAGE_SIZE * pages);
                return Ok(false);
            };
            if attached.files_left == 0 {
                break;
            }
            let received = match read.planes.try_recv() {
                Err(TryRecvError::Empty) if std::mem::take(&mut attached.may_wait) => {
                    read.planes.recv_timeout(READ_WAIT)
                }
                received => received.map_err(|error| match error {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                }),
            };
            match received {
                Ok(planes) => {
                    attached.files_left -= 1;
                    if !self.take_file(index, file, &mut read, &planes)? {
                        return Ok(false);
                    }
                    read.count += 1;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
        self.queue[index].stored = StoredPrefix::Reading(read);
        Ok(true)
    }

    /// Caches the contents of a file; returns whether there was room for them and they fit the model.
    fn take_file(
        &mut self,
        index: usize,
        file: StoredFile,
        read: &mut PrefixRead,
        planes: &[Plane],
    ) -> Result<bool, Error> {
        if file.is_states() {
            // Not always the last cached page.
            let (known, _, node) = self.pool.known(&self.queue[index].tokens[..file.tokens]);
            let node = node.filter(|_| known == file.tokens);
            let (Some(node), Some(checkpoint)) = (node, self.pool.reserve_checkpoint()) else {
                return Ok(false);
            };
            let is_written = self.runner.write_states(checkpoint, planes);
            if matches!(is_written, Ok(true)) {
                self.pool.move_checkpoint(None, node, checkpoint);
            } else {
                self.pool.return_checkpoint(checkpoint);
            }
            return is_written;
        }
        if self.pool.available() <= self.reserved_pages() {
            return Ok(false);
        }
        let Some(page) = self.pool.take() else { return Ok(false) };
        let is_written = self.runner.write_page(page, planes);
        if matches!(is_written, Ok(true)) {
            let tokens = &self.queue[index].tokens[file.tokens - PAGE_SIZE..file.tokens];
            read.node = self.pool.append(read.node, tokens, page);
        }
        self.pool.give_back(&[page]);
        Ok(is_written? && read.node.is_some())
    }

    /// Returns how long there must be no request until more is stored; `None` if everything is.
    pub(super) fn wait_to_store(&self) -> Option<Duration> {
        let attached = self.store.as_ref().filter(|_| self.pool.has_unstored());
        attached.map(|attached| attached.wait_to_store)
    }

    /// Stores a page, with the recurrent states after it if they are saved. Returns whether it did: not if nothing is
    /// left, or too many files wait to be written.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn store_next(&mut self) -> Result<bool, Error> {
        let Some(AttachedStore {
            store, wait_to_store, ..
        }) = &mut self.store
        else {
            return Ok(false);
        };
        if store.is_busy() {
            *wait_to_store = WRITE_WAIT;
            return Ok(false);
        }
        *wait_to_store = Duration::ZERO;
        while let Some(node) = self.pool.next_unstored() {
            let Some((tokens, page, checkpoint)) = self.pool.contents(node) else {
                continue;
            };
            let files = [
                store.missing(&tokens, false),
                store.missing(&tokens, true).filter(|_| checkpoint.is_some()),
            ];
            let mut is_stored = false;
            for (name, is_states) in files.into_iter().zip([false, true]) {
                let Some(name) = name else { continue };
                let planes = match checkpoint.filter(|_| is_states) {
                    Some(checkpoint) => self.runner.read_states(checkpoint)?,
                    None => self.runner.read_page(page)?,
                };
                store.write(name, &tokens, planes);
                is_stored = true;
            }
            if is_stored {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Stores what is cached, as far as time allows. Nothing is stored after it.
    pub fn close(&mut self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.wait_to_store().is_some() && !left().is_zero() {
            match self.store_next() {
                Ok(true) => {}
                Ok(false) => std::thread::sleep(WRITE_WAIT),
                Err(_) => break,
            }
        }
        if let Some(mut attached) = self.store.take() {
            attached.store.close(left());
        }
    }

    /// Notes that the first token of a request has arrived.
    pub(super) fn measure_prompt(&mut self, slot: usize) {
        let Some(attached) = &mut self.store else { return };
        let Some(Running {
            prompt,
            cached,
            admitted,
            ..
        }) = &self.slots[slot]
        else {
            return;
        };
        let took = self.runner.now().saturating_duration_since(*admitted);
        attached.times.note_computed(took, prompt - cached);
    }
}
