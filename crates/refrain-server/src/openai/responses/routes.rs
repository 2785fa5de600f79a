//! The responses and conversations that are kept: reading and deleting them.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::output::object_id;
use super::store::{Owner, ResponseStore, StoredEntry};
use crate::error::{Body, Refusal};
use crate::openapi::items::InputItem;
use crate::served::ServedModels;

/// The store, the owner that asks, and the id that is asked for.
type RequestedResponse = (Extension<ResponseStore>, HeaderMap, Result<Path<String>, PathRejection>);

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

/// Returns items as a list.
fn list(items: &[Arc<Value>]) -> Json<Value> {
    let data: Vec<Value> = items.iter().map(|item| Value::clone(item)).collect();
    let id = |item: Option<&Value>| item.and_then(|item| item["id"].as_str()).map(str::to_owned);
    let (first, last) = (id(data.first()), id(data.last()));
    Json(json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": false}))
}

/// Returns the items of a request.
///
/// # Errors
/// A value that is no object.
fn items(given: Option<Vec<Value>>) -> Result<Vec<Arc<Value>>, Refusal> {
    let given = given.unwrap_or_default();
    match given.iter().position(|item| !item.is_object()) {
        Some(index) => Err(Refusal::field("items", format!("item {index} is no object"))),
        None => Ok(given.into_iter().map(Arc::new).collect()),
    }
}

/// `GET /v1/responses/{id}`.
pub(crate) async fn response(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    Ok(Json(find((store, headers, id), "response")?.1.object))
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
) -> Result<Json<Value>, Refusal> {
    let (_, entry) = find((store, headers, id), "response")?;
    let output = entry.object["output"].as_array().map_or(0, Vec::len);
    let end = entry.items.len().saturating_sub(output);
    Ok(list(entry.items.get(entry.earlier..end).unwrap_or_default()))
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
    metadata: Option<Map<String, Value>>,
}

/// `POST /v1/conversations`.
pub(crate) async fn create_conversation(
    State(models): State<Arc<ServedModels>>,
    Extension(store): Extension<ResponseStore>,
    headers: HeaderMap,
    Body(request): Body<ConversationRequest>,
) -> Result<Json<Value>, Refusal> {
    let created = models.named(None)?.now();
    let metadata = Value::from(request.metadata.unwrap_or_default());
    let id = object_id("conv");
    let object = json!({"id": id, "object": "conversation", "created_at": created, "metadata": metadata});
    store.put(StoredEntry {
        id,
        owner: Owner::of(&headers),
        object: object.clone(),
        items: items(request.items)?,
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
) -> Result<Json<Value>, Refusal> {
    Ok(list(&find((store, headers, id), "conversation")?.1.items))
}

/// `POST /v1/conversations/{id}/items`.
pub(crate) async fn add_conversation_items(
    store: Extension<ResponseStore>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    Body(request): Body<ConversationRequest>,
) -> Result<Json<Value>, Refusal> {
    let (store, mut entry) = find((store, headers, id), "conversation")?;
    let added: Vec<Arc<Value>> = items(request.items)?;
    entry.items.extend(added.iter().cloned());
    store.put(entry);
    Ok(list(&added))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_objects() {
        assert_eq!(items(None).unwrap(), []);
        assert_eq!(
            items(Some(vec![json!({"id": "a"})])).unwrap(),
            [Arc::new(json!({"id": "a"}))]
        );
        let error = items(Some(vec![json!({}), json!(7)])).unwrap_err();
        assert_eq!(error.to_string(), "items: item 1 is no object");
    }

    #[test]
    fn lists_name_the_ids_that_are_strings() {
        let items = [json!({"id": 7}), json!({"id": "b"})].map(Arc::new);
        let Json(list) = list(&items);
        assert_eq!((&list["first_id"], &list["last_id"]), (&Value::Null, &json!("b")));
    }
}
