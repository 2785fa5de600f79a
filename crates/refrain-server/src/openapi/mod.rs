//! `GET /openapi.json`: a description of all routes for programs, in the OpenAPI format.
//!
//! The schemas of requests follow from the types that read them. Those of answers follow from the types that write
//! them, or from types that describe JSON that is built piece by piece; `tests/clients/openapi.py` checks real answers
//! against them. [`routes`] lists the operations; a test compares it with the router. Streams are described by the
//! schemas of their items, which OpenAPI has since version 3.2.

// Types that describe JSON are never created.
#![allow(dead_code)]

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod errors;
pub(crate) mod generation;
pub(crate) mod items;
pub(crate) mod messages;
pub(crate) mod ollama;
mod operation;
pub(crate) mod responses;
mod routes;
pub(crate) mod servers;
pub(crate) mod wire;

use std::sync::LazyLock;

use axum::Extension;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::access::ApiKeys;
use operation::{Generators, Tag};

/// The version of the OpenAPI specification: the first that describes the items of streams.
const OPENAPI_VERSION: &str = "3.2.0";
/// Where the document keeps schemas.
const DEFINITIONS: &str = "/components/schemas";
/// Formats of Rust's numbers, which JSON Schema does not know.
const FORMATS: [&str; 12] = [
    "double", "float", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "int",
];

/// Returns the document of this server.
pub(crate) async fn openapi(Extension(keys): Extension<ApiKeys>) -> impl IntoResponse {
    static WITHOUT_KEYS: LazyLock<Bytes> = LazyLock::new(|| document(false).to_string().into());
    static WITH_KEYS: LazyLock<Bytes> = LazyLock::new(|| document(true).to_string().into());
    let document = if keys.0.is_empty() { &WITHOUT_KEYS } else { &WITH_KEYS };
    ([(CONTENT_TYPE, "application/json")], Bytes::clone(document))
}

/// Returns the document of a server, which may ask for keys.
fn document(has_keys: bool) -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = DEFINITIONS.into();
            settings.meta_schema = None;
        })
    };
    let mut generators = Generators {
        requests: settings().for_deserialize().into_generator(),
        answers: settings().for_serialize().into_generator(),
    };
    let mut paths: Map<String, Value> = Map::new();
    let mut bodies = vec![];
    for operation in routes::operations() {
        let value = operation.json_value(&mut generators, has_keys);
        let body = value.pointer("/requestBody/content/application~1json/schema/$ref");
        bodies.extend(body.and_then(Value::as_str).map(str::to_owned));
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = value;
    }
    let mut schemas = generators.requests.take_definitions(true);
    for body in bodies {
        let name = body.rsplit('/').next().unwrap_or_default();
        schemas.get_mut(name).map(admit_null);
    }
    schemas.extend(generators.answers.take_definitions(true));
    let mut schemas = Value::Object(schemas);
    remove_formats(&mut schemas);
    schemas.sort_all_objects();
    let mut document = json!({
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Refrain",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A server of language models",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": Tag::ALL.map(|(_, name, description)| json!({"name": name, "description": description})),
        "paths": paths,
        "components": {"schemas": schemas, "headers": headers(), "securitySchemes": security_schemes()},
    });
    if has_keys {
        document["security"] = json!([{"bearer": []}, {"x-api-key": []}]);
    }
    document
}

fn headers() -> Value {
    json!({
        "x-request-id": {
            "description": "The id of the request: the client's own, or a new one.",
            "required": true,
            "schema": {"type": "string", "minLength": 1, "maxLength": 128},
        },
        "x-refrain-not-enforced": {
            "description": "Keywords of the request's JSON schemas that the answer need not obey, and where they are.",
            "schema": {"type": "string"},
        },
        "retry-after": {"required": true, "schema": {"type": "integer"}},
        "www-authenticate": {"required": true, "schema": {"type": "string"}},
    })
}

fn security_schemes() -> Value {
    json!({
        "bearer": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    })
}

/// Lets the optional fields of a body be null, which counts as absent.
fn admit_null(schema: &mut Value) {
    let required = schema["required"].clone();
    let is_required = |name: &String| {
        required
            .as_array()
            .is_some_and(|names| names.iter().any(|other| other == name))
    };
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in properties.into_iter().flatten().filter(|(name, _)| !is_required(name)) {
        if property["type"].is_string() && property["type"] != "null" {
            let kind = property["type"].take();
            property["type"] = json!([kind, "null"]);
        }
    }
}

/// Removes the formats of Rust's numbers.
fn remove_formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_number = |format: &Value| format.as_str().is_some_and(|format| FORMATS.contains(&format));
            if fields.get("format").is_some_and(is_number) {
                fields.shift_remove("format");
            }
            fields.values_mut().for_each(remove_formats);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_formats),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
