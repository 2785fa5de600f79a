//! Items of conversations as they are kept.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{text_of, value_of};

/// Memory of an item beside its id and its text, in bytes.
const ITEM_BYTES: usize = 128;

/// An item of a conversation. It is kept as JSON text: a tree of values takes several times the memory. Entries share it.
#[derive(Debug)]
pub(crate) struct StoredItem {
    id: Option<Box<str>>,
    json: Box<RawValue>,
}

impl StoredItem {
    /// Keeps an item.
    pub fn new(item: &Value) -> Arc<StoredItem> {
        Arc::new(StoredItem {
            id: item["id"].as_str().map(Box::from),
            json: text_of(item),
        })
    }

    /// Returns its id, if that is a string.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the item as clients see it.
    pub fn value(&self) -> Value {
        value_of(&self.json)
    }

    /// Returns its JSON text.
    pub(super) fn json(&self) -> &RawValue {
        &self.json
    }

    /// Returns the memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        ITEM_BYTES + self.id().map_or(0, str::len) + self.json.get().len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_come_back_as_they_were() {
        let items = [
            (
                json!({"id": "a", "n": 1.5, "of": [{}, null, u64::MAX, "\u{0}\"ü"]}),
                Some("a"),
            ),
            (json!({"z": 1, "a": -2, "id": 7}), None),
            (json!({}), None),
        ];
        for (item, id) in items {
            let stored = StoredItem::new(&item);
            assert_eq!((stored.value(), stored.id()), (item.clone(), id));
            assert_eq!(stored.json().get(), item.to_string(), "with its fields in order");
            assert!(stored.bytes() > item.to_string().len());
        }
    }
}
