//! Entries on disk: one file each, of which only this user may read.
//!
//! A file is written under another name and moved into place, so that it is there as a whole or not at all. Its first
//! line describes the entry; the rest is its content. Names are hashes: nothing that a client sends reaches the file
//! system. Keys are stored as hashes too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fs4::FileExt;
use refrain_formats::{make_private_directory, private_file};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Owner, StoredEntry, StoredItem};

/// Limit of the bytes of all files.
const MAX_BYTES: u64 = 1 << 30;
/// Limit of the number of files.
const MAX_FILES: usize = 16_384;
/// Maximum number of items, the last ones, by whose ids an entry is found.
const MAX_INDEXED_ITEMS: usize = 256;
/// Maximum number of bytes of a file's first line.
const MAX_HEAD_BYTES: u64 = 64 << 10;
/// The version of the files' format.
const FORMAT: u32 = 1;
/// Ending of the files, and of those that are being written.
const ENDING: &str = "json";
const PARTIAL_ENDING: &str = "partial";
/// Locked while a server uses the directory.
const LOCK: &str = "lock";

/// Entries in a directory.
#[derive(Debug)]
pub(super) struct DiskStore {
    directory: PathBuf,
    /// Locked as long as this exists.
    _lock: File,
    index: Mutex<Index>,
    limit: u64,
    /// Number of the next file that is written.
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Index {
    /// The oldest first.
    files: Vec<IndexedFile>,
    bytes: u64,
}

#[derive(Debug)]
struct IndexedFile {
    name: String,
    bytes: u64,
    head: FileHead,
}

/// The first line of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FileHead {
    format: u32,
    owner: String,
    /// Hashes of the ids of the last items.
    items: Vec<u64>,
}

/// The rest of a file.
#[derive(Serialize, Deserialize)]
struct FileContent {
    id: String,
    earlier: usize,
    object: Value,
    items: Vec<Value>,
}

/// The same, borrowed.
#[derive(Serialize)]
struct BorrowedContent<'e> {
    id: &'e str,
    earlier: usize,
    object: &'e Value,
    items: Vec<&'e RawValue>,
}

impl DiskStore {
    /// Opens a directory, which is made if it does not exist. Files that are damaged or were not finished are removed.
    ///
    /// # Errors
    /// If another server uses the directory, or it cannot be read or written.
    pub fn open(directory: &Path) -> io::Result<DiskStore> {
        DiskStore::with_limit(directory, MAX_BYTES)
    }

    fn with_limit(directory: &Path, limit: u64) -> io::Result<DiskStore> {
        make_private_directory(directory)?;
        let lock = private_file(&directory.join(LOCK), OpenOptions::new().create(true).truncate(false))?;
        if FileExt::try_lock(&lock).is_err() {
            let why = "another server keeps its responses there";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let mut found = vec![];
        for file in fs::read_dir(directory)? {
            let path = file?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some(PARTIAL_ENDING) => fs::remove_file(&path)?,
                Some(ENDING) => match indexed(&path) {
                    Some(file) => found.push(file),
                    None => fs::remove_file(&path)?,
                },
                _ => {}
            }
        }
        found.sort_by_key(|(modified, file)| (*modified, file.name.clone()));
        let mut index = Index::default();
        for (_, file) in found {
            index.bytes += file.bytes;
            index.files.push(file);
        }
        let store = DiskStore {
            directory: directory.to_owned(),
            _lock: lock,
            index: Mutex::new(index),
            limit,
            next: AtomicU64::new(0),
        };
        store.make_room(&mut store.lock(), 0);
        Ok(store)
    }

    /// Writes an entry, in the place of an earlier one with its id. The oldest ones make room. An entry beyond the
    /// limit is not kept, and the earlier one is removed.
    ///
    /// # Errors
    /// If it cannot be written. Then the earlier one stays.
    pub fn put(&self, entry: &StoredEntry) -> io::Result<()> {
        let name = name_of(&entry.owner, &entry.id);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let partial = self.directory.join(format!("{name}-{number}.{PARTIAL_ENDING}"));
        let written = write(&partial, entry, self.limit);
        let (head, bytes) = match written {
            Ok(Some(written)) => written,
            Ok(None) => {
                let _ = fs::remove_file(&partial);
                self.remove(&entry.owner, &entry.id);
                return Ok(());
            }
            Err(why) => {
                let _ = fs::remove_file(&partial);
                return Err(why);
            }
        };
        let mut index = self.lock();
        if let Err(why) = fs::rename(&partial, self.directory.join(&name)) {
            let _ = fs::remove_file(&partial);
            return Err(why);
        }
        index.forget(&name);
        self.make_room(&mut index, bytes);
        index.bytes += bytes;
        index.files.push(IndexedFile { name, bytes, head });
        Ok(())
    }

    /// Returns an entry of this owner.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<StoredEntry> {
        let name = name_of(owner, id);
        let is_known = self.lock().files.iter().any(|file| file.name == name);
        let entry = is_known.then(|| self.read(&name, owner)).flatten();
        entry.filter(|entry| entry.id == id)
    }

    /// Returns the item of this id in any entry of this owner.
    pub fn item(&self, owner: &Owner, id: &str) -> Option<Arc<StoredItem>> {
        let (wanted, of) = (hash_of(id), owner.hash());
        let names: Vec<String> = {
            let index = self.lock();
            let with_item = index.files.iter().rev();
            let with_item = with_item.filter(|file| file.head.owner == of && file.head.items.contains(&wanted));
            with_item.map(|file| file.name.clone()).take(1).collect()
        };
        let entry = names.first().and_then(|name| self.read(name, owner))?;
        entry.items.into_iter().find(|item| item.id() == Some(id))
    }

    /// Removes an entry of this owner. Returns whether there was one.
    pub fn remove(&self, owner: &Owner, id: &str) -> bool {
        let name = name_of(owner, id);
        let mut index = self.lock();
        let _ = fs::remove_file(self.directory.join(&name));
        index.forget(&name)
    }

    fn read(&self, name: &str, owner: &Owner) -> Option<StoredEntry> {
        let text = fs::read_to_string(self.directory.join(name)).ok()?;
        let (head, content) = text.split_once('\n')?;
        let head: FileHead = serde_json::from_str(head).ok()?;
        let content: FileContent = serde_json::from_str(content).ok()?;
        (head.owner == owner.hash()).then(|| StoredEntry {
            id: content.id,
            owner: owner.clone(),
            object: content.object,
            items: content.items.iter().map(StoredItem::new).collect(),
            earlier: content.earlier,
        })
    }

    /// Removes the oldest files until there is room for `bytes` more.
    fn make_room(&self, index: &mut Index, bytes: u64) {
        while index.bytes + bytes > self.limit || index.files.len() >= MAX_FILES {
            let Some(oldest) = index.files.first().map(|file| file.name.clone()) else {
                return;
            };
            let _ = fs::remove_file(self.directory.join(&oldest));
            index.forget(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Forgets a file. Returns whether it was known.
    fn forget(&mut self, name: &str) -> bool {
        let known = self.files.iter().position(|file| file.name == name);
        if let Some(at) = known {
            self.bytes -= self.files.remove(at).bytes;
        }
        known.is_some()
    }
}

/// Writes an entry to a new file. Returns its head and bytes; `None` if it is larger than `limit`.
fn write(path: &Path, entry: &StoredEntry, limit: u64) -> io::Result<Option<(FileHead, u64)>> {
    let ids = entry.items.iter().rev().filter_map(|item| item.id());
    let head = FileHead {
        format: FORMAT,
        owner: entry.owner.hash(),
        items: ids.take(MAX_INDEXED_ITEMS).map(hash_of).collect(),
    };
    let content = BorrowedContent {
        id: &entry.id,
        earlier: entry.earlier,
        object: &entry.object,
        items: entry.items.iter().map(|item| item.json()).collect(),
    };
    let file = private_file(path, OpenOptions::new().create_new(true))?;
    let mut writer = BufWriter::new(file);
    serde_json::to_writer(&mut writer, &head)?;
    writer.write_all(b"\n")?;
    serde_json::to_writer(&mut writer, &content)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    Ok((bytes <= limit).then_some((head, bytes)))
}

/// Returns what the index knows of a file, with its time; `None` if it is damaged.
fn indexed(path: &Path) -> Option<(std::time::SystemTime, IndexedFile)> {
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    let mut line = String::new();
    let mut reader = BufReader::new(io::Read::take(file, MAX_HEAD_BYTES));
    reader.read_line(&mut line).ok()?;
    let head: FileHead = serde_json::from_str(&line).ok()?;
    let file = IndexedFile {
        name: path.file_name()?.to_str()?.to_owned(),
        bytes: about.len(),
        head,
    };
    (file.head.format == FORMAT).then_some((about.modified().ok()?, file))
}

/// The name of an entry's file.
fn name_of(owner: &Owner, id: &str) -> String {
    format!("{}.{ENDING}", super::hex(&[owner.hash().as_bytes(), id.as_bytes()]))
}

fn hash_of(id: &str) -> u64 {
    let digest = super::digest(&[id.as_bytes()]);
    u64::from_le_bytes(digest.as_ref()[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use refrain_formats::is_private;
    use serde_json::json;

    use super::*;

    fn owner(key: &str) -> Owner {
        Owner(key.to_owned())
    }

    fn entry(id: &str, key: &str, text: usize) -> StoredEntry {
        StoredEntry {
            id: id.to_owned(),
            owner: owner(key),
            object: json!({"id": id, "object": "response"}),
            items: vec![StoredItem::new(
                &json!({"id": format!("item-{id}"), "text": "x".repeat(text)}),
            )],
            earlier: 0,
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let files = fs::read_dir(directory).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != LOCK).collect()
    }

    #[test]
    fn entries_outlive_the_server_and_belong_to_their_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("responses");
        let store = DiskStore::open(&path).unwrap();
        store.put(&entry("../../1", "SECRET", 10)).unwrap();
        store.put(&entry("2", "other", 10)).unwrap();
        let busy = DiskStore::open(&path).unwrap_err().to_string();
        assert!(busy.contains("another server"), "{busy}");
        drop(store);
        let store = DiskStore::open(&path).unwrap();
        let found = store.get(&owner("SECRET"), "../../1").expect("it was kept");
        assert_eq!(
            (found.object["object"].as_str(), found.items.len()),
            (Some("response"), 1)
        );
        assert!(store.get(&owner("other"), "../../1").is_none());
        assert!(store.item(&owner("other"), "item-2").is_some());
        assert!(store.item(&owner("SECRET"), "item-2").is_none());
        assert!(!store.remove(&owner("SECRET"), "2") && store.remove(&owner("other"), "2"));
        assert!(store.get(&owner("other"), "2").is_none());
        for name in names(&path) {
            assert!(name.ends_with(".json") && !name.contains(".."), "{name}");
            let text = fs::read_to_string(path.join(&name)).unwrap();
            assert!(!text.contains("SECRET"), "the key itself is not written");
            assert!(is_private(&path) && is_private(&path.join(&name)));
        }
    }

    #[test]
    fn the_oldest_files_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let store = DiskStore::with_limit(directory.path(), 5000).unwrap();
        for id in 0..8 {
            store.put(&entry(&id.to_string(), "a", 1000)).unwrap();
        }
        let all = owner("a");
        assert!(store.get(&all, "0").is_none() && store.get(&all, "7").is_some());
        store.put(&entry("7", "a", 10_000)).unwrap();
        assert!(store.get(&all, "7").is_none(), "an entry beyond the limit is not kept");
        assert!(store.get(&all, "6").is_some());
        let bytes = |name: &String| fs::metadata(directory.path().join(name)).unwrap().len();
        assert!(names(directory.path()).iter().map(bytes).sum::<u64>() <= 5000);
    }

    #[test]
    fn damaged_and_unfinished_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        drop(DiskStore::open(path).unwrap());
        for name in ["a.json", "b.partial", "kept.txt"] {
            fs::write(path.join(name), "{").unwrap();
        }
        let store = DiskStore::open(path).unwrap();
        assert_eq!(names(path), ["kept.txt"]);
        // A file that is damaged later is not found.
        store.put(&entry("1", "a", 1)).unwrap();
        let [name] = &names(path)
            .into_iter()
            .filter(|name| name.ends_with(ENDING))
            .collect::<Vec<_>>()[..]
        else {
            panic!("one file");
        };
        fs::write(path.join(name), "{").unwrap();
        assert!(store.get(&owner("a"), "1").is_none());
    }
}
