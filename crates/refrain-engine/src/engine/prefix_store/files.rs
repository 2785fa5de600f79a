//! The files of a directory of prefixes, and which of them go when it is full.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::SystemTime;

use refrain_formats::{AtomicFile, State, make_private_directory};

use super::PrefixStoreOptions;

/// Files that are written before the directory is listed again: others may write to it too.
const WRITES_PER_LISTING: u32 = 32;
/// Share of the limit that is in use after files were removed.
const SHARE_AFTER_REMOVAL: f64 = 0.95;

/// Names what a file holds, and what it continues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::engine) struct FileName {
    /// Hash of the model, the formats and the tokens.
    pub prefix: u128,
    /// The same without the last page of tokens.
    pub before: u128,
    /// Whether it holds recurrent states after the prefix, and not its last page.
    pub is_states: bool,
}

impl FileName {
    /// Returns the name of the states after a page.
    pub fn states(self) -> FileName {
        FileName {
            is_states: true,
            ..self
        }
    }

    /// Returns the prefix whose last page precedes the contents.
    fn continued(&self) -> u128 {
        if self.is_states { self.prefix } else { self.before }
    }

    /// Returns the name if the file is one of a store.
    fn parse(name: &str) -> Option<FileName> {
        let (digits, ending) = name.split_once('.')?;
        let (prefix, before) = digits.split_once('-')?;
        let number = |digits| u128::from_str_radix(digits, 16).ok();
        let parsed = FileName {
            prefix: number(prefix)?,
            before: number(before)?,
            is_states: ending == "states",
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ending = if self.is_states { "states" } else { "page" };
        write!(f, "{:032x}-{:032x}.{ending}", self.prefix, self.before)
    }
}

/// The files of a directory.
#[derive(Clone)]
pub(super) struct StoreFiles {
    directory: PathBuf,
    max_bytes: u64,
    warn: fn(&str),
    /// Bytes of all files when it was last listed, and of those that were written since.
    bytes: u64,
    /// Files that were written since.
    writes: u32,
    /// Whether the last file could not be written.
    fails: bool,
}

/// A file as it was listed.
struct ListedFile {
    name: FileName,
    bytes: u64,
    used: SystemTime,
}

impl StoreFiles {
    /// Opens a directory, which is created if necessary. One that cannot be read counts as empty.
    pub fn open(options: &PrefixStoreOptions) -> StoreFiles {
        // If it cannot be created, the first write fails and is reported.
        let _ = make_private_directory(&options.directory);
        let mut files = StoreFiles {
            directory: options.directory.clone(),
            max_bytes: options.max_bytes,
            warn: options.warn,
            bytes: 0,
            writes: 0,
            fails: false,
        };
        files.make_room(0, &mut |_| {});
        files
    }

    /// Returns the names of all files.
    pub fn names(&self) -> HashSet<FileName> {
        self.list().into_iter().map(|file| file.name).collect()
    }

    /// Reads a file, and notes that it is used. Returns `None` if it cannot be read; a damaged one is removed. So is one
    /// that is not `meant`, which has the name of another.
    pub fn read(&self, name: FileName, is_meant: impl FnOnce(&State) -> bool) -> Option<State> {
        let path = self.path(name);
        let why = match State::open(&path) {
            Ok(state) if is_meant(&state) => {
                self.touch(name);
                return Some(state);
            }
            Ok(_) => format!("{}: it holds another prefix than its name says", path.display()),
            Err(error @ refrain_formats::Error::File { .. }) => error.to_string(),
            // Another engine has removed it.
            Err(_) => return None,
        };
        let _ = fs::remove_file(path);
        (self.warn)(&format!("removed a damaged file of the prefix cache: {why}"));
        None
    }

    /// Notes that a file is used. If that fails, it counts as unused.
    fn touch(&self, name: FileName) {
        let opened = File::options().write(true).open(self.path(name));
        let _ = opened.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Writes a file, and removes the least recently used ones if the directory is full. `removed` is called with each.
    /// Returns whether it was written. The first of several failures is reported.
    pub fn write(&mut self, name: FileName, state: &State, mut removed: impl FnMut(FileName)) -> bool {
        let bytes = state.encode();
        let needed = bytes.len() as u64;
        if needed > self.max_bytes {
            return false;
        }
        if self.writes >= WRITES_PER_LISTING || self.bytes + needed > self.max_bytes {
            self.make_room(needed, &mut removed);
        }
        if self.bytes + needed > self.max_bytes {
            return false;
        }
        match AtomicFile::write_private(&self.path(name), &bytes) {
            Ok(()) => {
                self.bytes += needed;
                self.writes += 1;
                self.fails = false;
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true) {
                    (self.warn)(&format!("the prefix cache is not stored on disk: {error}"));
                }
                false
            }
        }
    }

    /// Lists the directory, and removes files until `needed` bytes more may be written.
    fn make_room(&mut self, needed: u64, removed: &mut impl FnMut(FileName)) {
        let all = self.list();
        self.bytes = all.iter().map(|file| file.bytes).sum();
        self.writes = 0;
        if self.bytes + needed <= self.max_bytes {
            return;
        }
        let most = ((self.max_bytes as f64 * SHARE_AFTER_REMOVAL) as u64).min(self.max_bytes - needed);
        for file in most_useful_first(all).into_iter().rev() {
            if self.bytes <= most {
                return;
            }
            if fs::remove_file(self.path(file.name)).is_ok() {
                self.bytes -= file.bytes;
                removed(file.name);
            }
        }
    }

    fn list(&self) -> Vec<ListedFile> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let listed = entries.filter_map(|entry| {
            let name = FileName::parse(entry.file_name().to_str()?)?;
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(ListedFile {
                name,
                bytes: metadata.len(),
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            })
        });
        listed.collect()
    }

    fn path(&self, name: FileName) -> PathBuf {
        self.directory.join(name.to_string())
    }
}

/// Sorts files by their last use. Each comes after those that it continues: without them it is of no use.
fn most_useful_first(mut files: Vec<ListedFile>) -> Vec<ListedFile> {
    files.sort_by_key(|file| Reverse(file.used));
    let ids: Vec<_> = files
        .iter()
        .map(|file| (file.name.prefix, file.name.is_states))
        .collect();
    let mut rest: HashMap<_, _> = ids.iter().copied().zip(files).collect();
    let mut sorted = vec![];
    for id in ids {
        let (mut next, mut path) = (id, vec![]);
        while let Some(file) = rest.remove(&next) {
            next = (file.name.continued(), false);
            path.push(file);
        }
        sorted.extend(path.into_iter().rev());
    }
    sorted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn beginnings_are_kept_longer_than_what_continues_them() {
        let file = |prefix, before, is_states, used| ListedFile {
            name: FileName {
                prefix,
                before,
                is_states,
            },
            bytes: 1,
            used: SystemTime::UNIX_EPOCH + Duration::from_secs(used),
        };
        // 1, 2 and 3 are a prefix; 4 continues 1; 7 continues what is gone.
        let files = vec![
            file(1, 0, false, 10),
            file(2, 1, false, 90),
            file(2, 1, true, 20),
            file(3, 2, false, 30),
            file(4, 1, false, 40),
            file(7, 6, false, 95),
        ];
        let sorted = most_useful_first(files).into_iter();
        let sorted: Vec<_> = sorted.map(|file| (file.name.prefix, file.name.is_states)).collect();
        let expected = [(7, false), (1, false), (2, false), (4, false), (3, false), (2, true)];
        assert_eq!(sorted, expected);
        // A file that continues itself is like any other.
        assert_eq!(most_useful_first(vec![file(5, 5, false, 1)]).len(), 1);
    }

    #[test]
    fn names_round_trip() {
        let name = FileName {
            prefix: 1 << 100,
            before: 3,
            is_states: false,
        };
        for name in [name, name.states()] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        let others = ["notes.txt", "1-2.page", "page", ".refrain-a.partial", "-.states"];
        assert!(others.iter().all(|name| FileName::parse(name).is_none()));
        assert_eq!(FileName::parse(&format!("{name}.bak")), None);
    }
}
