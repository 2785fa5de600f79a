//! Responses and conversations that are kept for later requests, in bounded memory.
//!
//! Each entry belongs to the API key that made it; other keys cannot see it. The oldest entries are dropped when the
//! store is full. Entries are written to disk only if the operator names a directory.

mod disk;
mod item;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::HeaderMap;
use ring::digest::{Context, Digest, SHA256};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use disk::DiskStore;
pub(crate) use item::StoredItem;

use crate::access::given_key;
use crate::digest::hexadecimal;

/// Limit of the memory of all entries, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Limit of the number of entries.
const MAX_ENTRIES: usize = 4096;
/// Memory of an entry beside its text and its items, in bytes.
const ENTRY_BYTES: usize = 256;

/// The API key of a request. Entries belong to keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// Returns the owner of what a request makes: the key that it gives, if any.
    pub fn of(headers: &HeaderMap) -> Owner {
        Owner(given_key(headers).to_owned())
    }

    /// A hash that stands for the owner on disk.
    fn hash(&self) -> String {
        hex(&[b"owner", self.0.as_bytes()])
    }
}

fn digest(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&part.len().to_le_bytes());
        context.update(part);
    }
    context.finish()
}

fn hex(parts: &[&[u8]]) -> String {
    hexadecimal(digest(parts).as_ref())
}

/// A response or a conversation.
#[derive(Debug, Clone)]
pub(crate) struct StoredEntry {
    pub id: String,
    pub owner: Owner,
    /// The object as clients see it.
    pub object: Value,
    /// All items of the conversation up to its end. Entries share them.
    pub items: Vec<Arc<StoredItem>>,
    /// How many of the items came before the response's own input.
    pub earlier: usize,
}

/// Returns a value as JSON text.
fn text_of(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("values can be written")
}

/// Returns the value of a JSON text that was a value.
fn value_of(text: &RawValue) -> Value {
    serde_json::from_str(text.get()).expect("it was a value")
}

/// A [`StoredEntry`] in memory, with its object as JSON text: a tree of values takes several times the memory.
#[derive(Debug, Clone)]
struct EntryInMemory {
    id: String,
    owner: Owner,
    object: Arc<RawValue>,
    items: Vec<Arc<StoredItem>>,
    earlier: usize,
    /// The memory that it takes, as if it shared no items.
    bytes: usize,
}

impl From<StoredEntry> for EntryInMemory {
    fn from(entry: StoredEntry) -> EntryInMemory {
        let object = text_of(&entry.object);
        let items: usize = entry.items.iter().map(|item| item.bytes()).sum();
        EntryInMemory {
            bytes: ENTRY_BYTES + entry.id.len() + entry.owner.0.len() + object.get().len() + items,
            id: entry.id,
            owner: entry.owner,
            object: object.into(),
            items: entry.items,
            earlier: entry.earlier,
        }
    }
}

impl From<EntryInMemory> for StoredEntry {
    fn from(entry: EntryInMemory) -> StoredEntry {
        StoredEntry {
            id: entry.id,
            owner: entry.owner,
            object: value_of(&entry.object),
            items: entry.items,
            earlier: entry.earlier,
        }
    }
}

/// Keeps responses and conversations for later requests. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ResponseStore(Arc<Layers>);

#[derive(Debug, Default)]
struct Layers {
    memory: Mutex<Entries>,
    disk: Option<DiskStore>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The oldest first.
    entries: VecDeque<EntryInMemory>,
    bytes: usize,
}

impl Entries {
    fn position(&self, owner: &Owner, id: &str) -> Option<usize> {
        self.entries
            .iter()
            .position(|entry| entry.id == id && entry.owner == *owner)
    }

    fn remove(&mut self, index: usize) {
        if let Some(entry) = self.entries.remove(index) {
            self.bytes -= entry.bytes;
        }
    }

    fn put(&mut self, entry: EntryInMemory) {
        let bytes = entry.bytes;
        if let Some(index) = self.position(&entry.owner, &entry.id) {
            self.remove(index);
        }
        if bytes > MAX_BYTES {
            return;
        }
        while self.bytes + bytes > MAX_BYTES || self.entries.len() >= MAX_ENTRIES {
            self.remove(0);
        }
        self.bytes += bytes;
        self.entries.push_back(entry);
    }
}

impl ResponseStore {
    /// Keeps entries in a directory too, so that they outlive the server. At most 1 GiB; the oldest make room.
    ///
    /// # Errors
    /// If another server uses the directory, or it cannot be read or written.
    pub fn on_disk(directory: &Path) -> io::Result<ResponseStore> {
        Ok(ResponseStore(Arc::new(Layers {
            memory: Mutex::default(),
            disk: Some(DiskStore::open(directory)?),
        })))
    }

    /// Keeps an entry, in the place of an earlier one with its id. An entry beyond the limit is not kept.
    ///
    /// If it cannot be written to disk, it is kept in memory only.
    pub(crate) fn put(&self, entry: StoredEntry) {
        self.with_disk(|disk| disk.put(&entry).ok());
        let entry = entry.into();
        self.lock().put(entry);
    }

    /// Returns an entry of this owner.
    pub(crate) fn get(&self, owner: &Owner, id: &str) -> Option<StoredEntry> {
        let found = {
            let all = self.lock();
            all.position(owner, id).map(|index| all.entries[index].clone())
        };
        found
            .map(StoredEntry::from)
            .or_else(|| self.with_disk(|disk| disk.get(owner, id)))
    }

    /// Returns the item of this id in any entry of this owner.
    pub(crate) fn item(&self, owner: &Owner, id: &str) -> Option<Arc<StoredItem>> {
        let found = {
            let all = self.lock();
            let entries = all.entries.iter().rev().filter(|entry| entry.owner == *owner);
            let mut items = entries.flat_map(|entry| &entry.items);
            items.find(|item| item.id() == Some(id)).cloned()
        };
        found.or_else(|| self.with_disk(|disk| disk.item(owner, id)))
    }

    /// Removes an entry of this owner. Returns whether there was one.
    pub(crate) fn remove(&self, owner: &Owner, id: &str) -> bool {
        let was_on_disk = self.with_disk(|disk| disk.remove(owner, id).then_some(()));
        let mut all = self.lock();
        let index = all.position(owner, id);
        index.map(|index| all.remove(index)).is_some() || was_on_disk.is_some()
    }

    /// Uses the disk, if there is one. Other tasks of this thread go on elsewhere.
    fn with_disk<T>(&self, work: impl FnOnce(&DiskStore) -> Option<T>) -> Option<T> {
        let disk = self.0.disk.as_ref()?;
        tokio::task::block_in_place(|| work(disk))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(id: &str, owner: &str, text: usize) -> StoredEntry {
        StoredEntry {
            id: id.to_owned(),
            owner: Owner(owner.to_owned()),
            object: json!({"id": id}),
            items: vec![StoredItem::new(
                &json!({"id": format!("item-{id}"), "text": "x".repeat(text)}),
            )],
            earlier: 0,
        }
    }

    #[test]
    fn entries_belong_to_the_key_that_made_them() {
        let (store, [mine, yours]) = (ResponseStore::default(), ["a", "b"].map(|key| Owner(key.to_owned())));
        store.put(entry("1", "a", 1));
        assert!(store.get(&mine, "1").is_some() && store.get(&yours, "1").is_none());
        assert!(store.item(&mine, "item-1").is_some() && store.item(&yours, "item-1").is_none());
        assert!(!store.remove(&yours, "1") && store.remove(&mine, "1") && !store.remove(&mine, "1"));
        assert_eq!(store.lock().bytes, 0);
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
        };
        assert_eq!(Owner::of(&headers("authorization", "bearer a")), mine);
        assert_eq!(Owner::of(&headers("x-api-key", "a")), mine);
    }

    #[test]
    fn the_oldest_entries_make_room() {
        if !refrain_testing::drawn(6) {
            return;
        }
        let (store, owner) = (ResponseStore::default(), Owner("a".to_owned()));
        for id in 0..5 {
            store.put(entry(&id.to_string(), "a", MAX_BYTES / 4));
        }
        assert!(store.get(&owner, "0").is_none() && store.get(&owner, "4").is_some());
        store.put(entry("large", "a", MAX_BYTES));
        assert!(store.get(&owner, "large").is_none() && store.get(&owner, "4").is_some());
        for id in 0..=MAX_ENTRIES {
            store.put(entry(&format!("n{id}"), "a", 1));
        }
        let all = store.lock();
        assert!(all.entries.len() == MAX_ENTRIES && all.bytes <= MAX_BYTES);
    }

    #[test]
    fn entries_on_disk_are_found_after_a_restart() {
        if !refrain_testing::drawn(8) {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let owner = Owner("a".to_owned());
        let store = ResponseStore::on_disk(directory.path()).unwrap();
        store.put(entry("1", "a", 1));
        store.put(entry("2", "a", MAX_BYTES));
        assert!(store.get(&owner, "2").is_some(), "too large for the memory alone");
        drop(store);
        let store = ResponseStore::on_disk(directory.path()).unwrap();
        assert!(store.get(&owner, "1").is_some() && store.item(&owner, "item-2").is_some());
        assert!(store.remove(&owner, "1") && store.get(&owner, "1").is_none() && !store.remove(&owner, "1"));
    }
}
