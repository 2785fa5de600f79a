//! Responses and conversations that are kept for later requests, in bounded memory.
//!
//! Each entry belongs to the API key that made it; other keys cannot see it. The oldest entries are dropped when the
//! store is full. Nothing is written to disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use serde_json::Value;

/// Limit of the memory of all entries, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Limit of the number of entries.
const MAX_ENTRIES: usize = 4096;
/// Memory that a JSON value takes beside its text, in bytes.
const VALUE_BYTES: usize = 96;

/// The API key of a request. Entries belong to keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// Returns the owner of what a request makes: the key that it gives, if any.
    pub fn of(headers: &HeaderMap) -> Owner {
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let bearer = header(AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
            .map(|(_, key)| key);
        let key = bearer.or_else(|| header("x-api-key")).unwrap_or_default();
        Owner(key.trim().to_owned())
    }
}

/// A response or a conversation.
#[derive(Debug, Clone)]
pub(crate) struct StoredEntry {
    pub id: String,
    pub owner: Owner,
    /// The object as clients see it.
    pub object: Value,
    /// All items of the conversation up to its end. Entries share them.
    pub items: Vec<Arc<Value>>,
    /// How many of the items came before the response's own input.
    pub earlier: usize,
}

impl StoredEntry {
    fn bytes(&self) -> usize {
        let items = self.items.iter().map(|item| bytes(item));
        bytes(&self.object) + items.sum::<usize>() + VALUE_BYTES
    }
}

fn bytes(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + bytes(value)).sum(),
            _ => 0,
        }
}

/// Keeps responses and conversations.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// The oldest first, each with its bytes.
    entries: VecDeque<(StoredEntry, usize)>,
    bytes: usize,
}

impl Entries {
    fn position(&self, owner: &Owner, id: &str) -> Option<usize> {
        self.entries
            .iter()
            .position(|(entry, _)| entry.id == id && entry.owner == *owner)
    }

    fn remove(&mut self, index: usize) {
        if let Some((_, bytes)) = self.entries.remove(index) {
            self.bytes -= bytes;
        }
    }
}

impl ResponseStore {
    /// Keeps an entry, in the place of an earlier one with its id. An entry beyond the limit is not kept.
    pub fn put(&self, entry: StoredEntry) {
        let bytes = entry.bytes();
        let mut all = self.lock();
        if let Some(index) = all.position(&entry.owner, &entry.id) {
            all.remove(index);
        }
        if bytes > MAX_BYTES {
            return;
        }
        while all.bytes + bytes > MAX_BYTES || all.entries.len() >= MAX_ENTRIES {
            all.remove(0);
        }
        all.bytes += bytes;
        all.entries.push_back((entry, bytes));
    }

    /// Returns an entry of this owner.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<StoredEntry> {
        let all = self.lock();
        let index = all.position(owner, id)?;
        Some(all.entries[index].0.clone())
    }

    /// Returns the item of this id in any entry of this owner.
    pub fn item(&self, owner: &Owner, id: &str) -> Option<Arc<Value>> {
        let all = self.lock();
        let entries = all.entries.iter().rev().filter(|(entry, _)| entry.owner == *owner);
        let mut items = entries.flat_map(|(entry, _)| &entry.items);
        items.find(|item| item["id"] == id).cloned()
    }

    /// Removes an entry of this owner. Returns whether there was one.
    pub fn remove(&self, owner: &Owner, id: &str) -> bool {
        let mut all = self.lock();
        let index = all.position(owner, id);
        index.map(|index| all.remove(index)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
            items: vec![Arc::new(json!({"id": format!("item-{id}"), "text": "x".repeat(text)}))],
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
}
