//! Lists of items in pages, as OpenAI's API divides them.

use std::sync::Arc;

use axum::Json;
use axum::http::Uri;
use serde_json::{Value, json};

use super::store::StoredItem;
use crate::error::Refusal;
use crate::query;

/// Number of items of a page that gives no limit, and the most that it may have.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// Which items are listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    limit: usize,
    oldest_first: bool,
    /// The id of the item before the page.
    after: Option<String>,
}

impl Page {
    /// Reads `limit`, `order` and `after` of a query.
    ///
    /// # Errors
    /// If the limit is out of range, or the order is unknown.
    pub fn of(uri: &Uri) -> Result<Page, Refusal> {
        let limit = match query::parameter(uri, "limit") {
            None => DEFAULT_LIMIT,
            Some(limit) => limit
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| Refusal::field("limit", format!("{limit:?} is no integer between 1 and {MAX_LIMIT}")))?,
        };
        let oldest_first = match query::parameter(uri, "order").as_deref() {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(order) => {
                let why = format!("{order:?} is neither \"asc\" nor \"desc\"");
                return Err(Refusal::field("order", why));
            }
        };
        Ok(Page {
            limit,
            oldest_first,
            after: query::parameter(uri, "after"),
        })
    }

    /// Returns the page of these items, which are given with the oldest first.
    ///
    /// # Errors
    /// If the item before the page is not among them.
    pub fn list(&self, items: &[Arc<StoredItem>]) -> Result<Json<Value>, Refusal> {
        let mut items: Vec<&Arc<StoredItem>> = items.iter().collect();
        if !self.oldest_first {
            items.reverse();
        }
        let start = match &self.after {
            None => 0,
            Some(after) => {
                let before = items.iter().position(|item| item.id() == Some(after));
                before.ok_or_else(|| Refusal::field("after", format!("no item has the id {after:?}")))? + 1
            }
        };
        let rest = &items[start..];
        let page = &rest[..rest.len().min(self.limit)];
        Ok(list(page.iter().copied(), page.len() < rest.len()))
    }
}

/// Returns items as a list. `has_more` is whether others follow.
pub(super) fn list<'i>(items: impl Iterator<Item = &'i Arc<StoredItem>>, has_more: bool) -> Json<Value> {
    let data: Vec<Value> = items.map(|item| item.value()).collect();
    let id = |item: Option<&Value>| item.and_then(|item| item["id"].as_str()).map(str::to_owned);
    let (first, last) = (id(data.first()), id(data.last()));
    Json(json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Result<Page, Refusal> {
        Page::of(&format!("/v1/conversations/conv_1/items{query}").parse().unwrap())
    }

    fn ids(query: &str) -> (Vec<i64>, bool) {
        let items: Vec<Arc<StoredItem>> = (0..30)
            .map(|id| StoredItem::new(&json!({"id": format!("msg_{id}"), "n": id})))
            .collect();
        let Json(list) = page(query).unwrap().list(&items).unwrap();
        let data = list["data"].as_array().unwrap();
        assert_eq!(list["first_id"], data[0]["id"]);
        assert_eq!(list["last_id"], data[data.len() - 1]["id"]);
        let ids = data.iter().map(|item| item["n"].as_i64().unwrap());
        (ids.collect(), list["has_more"] == true)
    }

    #[test]
    fn pages_have_the_newest_items_first_unless_asked_otherwise() {
        assert_eq!(ids(""), ((10..30).rev().collect(), true));
        assert_eq!(ids("?limit=2"), (vec![29, 28], true));
        assert_eq!(ids("?limit=2&order=asc"), (vec![0, 1], true));
        assert_eq!(ids("?after=msg_2"), (vec![1, 0], false));
        assert_eq!(ids("?order=asc&after=msg_28&limit=1"), (vec![29], false));
    }

    #[test]
    fn pages_of_unknown_kinds_are_refused() {
        for (query, field) in [
            ("?limit=0", "limit"),
            ("?limit=101", "limit"),
            ("?limit=x", "limit"),
            ("?order=up", "order"),
        ] {
            let error = page(query).unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
        let error = page("?after=msg_99").unwrap().list(&[]).unwrap_err().to_string();
        assert!(error.starts_with("after"), "{error}");
    }

    #[test]
    fn lists_name_the_ids_that_are_strings() {
        let items = [json!({"id": 7}), json!({"id": "b"})].map(|item| StoredItem::new(&item));
        let Json(list) = list(items.iter(), false);
        assert_eq!((&list["first_id"], &list["last_id"]), (&Value::Null, &json!("b")));
    }
}
