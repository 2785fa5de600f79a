//! The responses and conversations that are kept: reading and deleting them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::items::stored;
use super::pages::{Page, list};
use super::store::{Owner, ResponseStore, StoredEntry, StoredItem};
use crate::error::{Body, Refusal};
use crate::openai::object_id;
use crate::openapi::items::InputItem;
use crate::query;
use crate::served::ServedModels;

/// The store, the owner that asks, and the id that is asked for.
type RequestedResponse = (Extension<ResponseStore>, HeaderMap, Result<Path<String>, PathRejection>);

/// The same, with the ids of a conversation and an item.
type RequestedItem = (
    Extension<ResponseStore>,
    HeaderMap,
    Result<Path<(String, String)>, PathRejection>,
);

fn find(
    (Extension(store), headers, id): RequestedResponse,
    kind: &str,
) -> Result<(ResponseStore, StoredEntry), Refusal> {
    let Path(id) = id?;
    let entry = store.get(&Owner::of(&headers), &id);
    let entry = entry.filter(|entry| entry.object["object"] == kind);
    let entry = entry.ok_or_else(|| Refusal::NoSuchObject(format!("{kind} {id:?}")))?;
    Ok((store, entry))
}

fn delete(asked: RequestedResponse, kind: &str) -> Result<Json<Value>, Refusal> {
    let (store, entry) = find(asked, kind)?;
    store.remove(&entry.owner, &entry.id);
    let object = if kind == "response" {
        "response"
    } else {
        "conversation.deleted"
    };
    Ok(Json(json!({"id": entry.id, "object": object, "deleted": true})))
}

/// Returns the items of a request as they are kept.
///
/// # Errors
/// A value that is no object.
fn items(given: Option<Vec<Value>>) -> Result<Vec<Arc<StoredItem>>, Refusal> {
    let given = given.unwrap_or_default();
    match given.iter().position(|item| !item.is_object()) {
        Some(index) => Err(Refusal::field("items", format!("item {index} is no object"))),
        None => Ok(given.into_iter().map(|item| StoredItem::new(&stored(item))).collect()),
    }
}

/// `GET /v1/responses/{id}`.
pub(crate) async fn response(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    let (_, entry) = find((store, headers, id), "response")?;
    if query::parameter(&uri, "stream").as_deref() == Some("true") {
        let why = "events of a response are not kept; read it without stream";
        return Err(Refusal::field("stream", why));
    }
    Ok(Json(entry.object))
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete_response(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    delete((store, headers, id), "response")
}

/// `GET /v1/responses/{id}/input_items`.
pub(crate) async fn input_items(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    let (_, entry) = find((store, headers, id), "response")?;
    let output = entry.object["output"].as_array().map_or(0, Vec::len);
    let end = entry.items.len().saturating_sub(output);
    Page::of(&uri)?.list(entry.items.get(entry.earlier..end).unwrap_or_default())
}

/// `POST /v1/responses/{id}/cancel`.
pub(crate) async fn cancel(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    find((store, headers, id), "response")?;
    Err(Refusal::field(
        "background",
        "only background responses can be cancelled, and this server has none",
    ))
}

/// Items of a conversation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ConversationRequest {
    #[schemars(with = "Option<Vec<InputItem>>")]
    items: Option<Vec<Value>>,
    metadata: Option<BTreeMap<String, String>>,
}

impl ConversationRequest {
    /// Returns the items, as they are stored.
    ///
    /// # Errors
    /// If one is no object.
    pub fn items(self) -> Result<Vec<Arc<StoredItem>>, Refusal> {
        items(self.items)
    }
}

/// New metadata of a conversation.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ConversationChange {
    metadata: BTreeMap<String, String>,
}

/// `POST /v1/conversations`.
pub(crate) async fn create_conversation(
    State(models): State<Arc<ServedModels>>,
    Extension(store): Extension<ResponseStore>,
    headers: HeaderMap,
    Body(mut request): Body<ConversationRequest>,
) -> Result<Json<Value>, Refusal> {
    let created = models.named(None)?.now();
    let metadata = request.metadata.take().unwrap_or_default();
    let id = object_id("conv");
    let object = json!({"id": id, "object": "conversation", "created_at": created, "metadata": metadata});
    store.put(StoredEntry {
        id,
        owner: Owner::of(&headers),
        object: object.clone(),
        items: request.items()?,
        earlier: 0,
    });
    Ok(Json(object))
}

/// `GET /v1/conversations/{id}`.
pub(crate) async fn conversation(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    Ok(Json(find((store, headers, id), "conversation")?.1.object))
}

/// `POST /v1/conversations/{id}`.
pub(crate) async fn change_conversation(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    Body(request): Body<ConversationChange>,
) -> Result<Json<Value>, Refusal> {
    let (store, mut entry) = find((store, headers, id), "conversation")?;
    entry.object["metadata"] = json!(request.metadata);
    let object = entry.object.clone();
    store.put(entry);
    Ok(Json(object))
}

/// `DELETE /v1/conversations/{id}`.
pub(crate) async fn delete_conversation(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    delete((store, headers, id), "conversation")
}

/// `GET /v1/conversations/{id}/items`.
pub(crate) async fn conversation_items(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    let (_, entry) = find((store, headers, id), "conversation")?;
    Page::of(&uri)?.list(&entry.items)
}

/// `POST /v1/conversations/{id}/items`.
pub(crate) async fn add_conversation_items(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    Body(request): Body<ConversationRequest>,
) -> Result<Json<Value>, Refusal> {
    let (store, mut entry) = find((store, headers, id), "conversation")?;
    let added = request.items()?;
    entry.items.extend(added.iter().cloned());
    store.put(entry);
    Ok(list(added.iter(), false))
}

/// Returns a conversation and the index of one of its items.
fn find_item((store, headers, ids): RequestedItem) -> Result<(ResponseStore, StoredEntry, usize), Refusal> {
    let Path((id, item)) = ids?;
    let (store, entry) = find((store, headers, Ok(Path(id))), "conversation")?;
    let index = entry.items.iter().position(|other| other.id() == Some(&item));
    let index = index.ok_or_else(|| Refusal::NoSuchObject(format!("item {item:?}")))?;
    Ok((store, entry, index))
}

/// `GET /v1/conversations/{id}/items/{item}`.
pub(crate) async fn conversation_item(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let (_, entry, index) = find_item((store, headers, ids))?;
    Ok(Json(entry.items[index].value()))
}

/// `DELETE /v1/conversations/{id}/items/{item}`. Returns the conversation.
pub(crate) async fn delete_conversation_item(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let (store, mut entry, index) = find_item((store, headers, ids))?;
    entry.items.remove(index);
    let object = entry.object.clone();
    store.put(entry);
    Ok(Json(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_objects() {
        let values = |given| -> Vec<Value> { items(given).unwrap().iter().map(|item| item.value()).collect() };
        assert!(values(None).is_empty());
        let reasoning = json!({"id": "a", "type": "reasoning"});
        assert_eq!(values(Some(vec![reasoning.clone()])), [reasoning]);
        let error = items(Some(vec![json!({}), json!(7)])).unwrap_err();
        assert_eq!(error.to_string(), "items: item 1 is no object");
    }
}
