//! An operation of the document: a method of a path, its request, and every answer that it has.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::errors::{AnthropicError, OllamaError, OpenAiError};

/// The header that tells what of a schema is not enforced.
const NOT_ENFORCED: &str = "x-refrain-not-enforced";

/// Adds a type to the definitions and returns a reference to it.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The interface that an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    OpenAi,
    Anthropic,
    Ollama,
    LlamaServer,
    Vllm,
    Monitoring,
    Page,
}

impl Tag {
    pub const ALL: [(Tag, &str, &str); 7] = [
        (
            Tag::OpenAi,
            "OpenAI",
            "OpenAI's interface, with fields of vLLM and llama-server.",
        ),
        (Tag::Anthropic, "Anthropic", "Anthropic's interface."),
        (Tag::Ollama, "Ollama", "Ollama's interface."),
        (Tag::LlamaServer, "llama-server", "Routes of llama-server."),
        (Tag::Vllm, "vLLM", "Routes of vLLM."),
        (Tag::Monitoring, "Monitoring", "Health, metrics, and this document."),
        (Tag::Page, "Page", "The web page."),
    ];

    fn name(self) -> &'static str {
        let all = Tag::ALL.iter();
        all.filter(|(tag, ..)| *tag == self)
            .map(|(_, name, _)| *name)
            .next()
            .unwrap_or_default()
    }
}

/// A parameter of the address' query, and its schema.
pub(super) type QueryParameter = (&'static str, fn() -> Value);

/// Which errors an operation may answer with, beside those that every request may get.
#[derive(Debug, Clone, Copy, Default)]
struct ErrorCases {
    /// It needs a key if the server has keys.
    is_guarded: bool,
    has_body: bool,
    others: &'static [u16],
}

/// What a part of the body's content is.
struct Content {
    media_type: &'static str,
    schema: SchemaOf,
    /// Whether the schema is that of an item of a stream.
    is_item: bool,
}

/// An operation.
pub(super) struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    tag: Tag,
    id: &'static str,
    summary: &'static str,
    query: &'static [QueryParameter],
    request: Option<SchemaOf>,
    /// What a successful answer contains. Empty if it never succeeds.
    content: Vec<Content>,
    errors: ErrorCases,
}

/// The generators of schemas: what requests may be differs from what answers are, such as in absent fields.
pub(super) struct Generators {
    pub requests: SchemaGenerator,
    pub answers: SchemaGenerator,
}

impl Operation {
    pub fn new(
        tag: Tag,
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        let errors = ErrorCases {
            is_guarded: true,
            ..ErrorCases::default()
        };
        Operation {
            method,
            path,
            tag,
            id,
            summary,
            query: &[],
            request: None,
            content: vec![],
            errors,
        }
    }

    /// Sets the type of the request's body.
    pub fn body<T: JsonSchema>(mut self) -> Operation {
        self.request = Some(schema_of::<T>);
        self.errors.has_body = true;
        self
    }

    /// Sets the parameters of the query.
    pub fn query(mut self, parameters: &'static [QueryParameter]) -> Operation {
        self.query = parameters;
        self
    }

    /// Adds an answer of JSON.
    pub fn json<T: JsonSchema>(self) -> Operation {
        self.content("application/json", schema_of::<T>, false)
    }

    /// Adds an answer of server-sent events.
    pub fn events<T: JsonSchema>(self) -> Operation {
        self.content("text/event-stream", schema_of::<T>, true)
    }

    /// Adds an answer of lines of JSON.
    pub fn lines<T: JsonSchema>(self) -> Operation {
        self.content("application/x-ndjson", schema_of::<T>, true)
    }

    /// Adds an answer of text.
    pub fn text(self, media_type: &'static str) -> Operation {
        self.content(media_type, schema_of::<super::wire::Text>, false)
    }

    fn content(mut self, media_type: &'static str, schema: SchemaOf, is_item: bool) -> Operation {
        self.content.push(Content {
            media_type,
            schema,
            is_item,
        });
        self
    }

    /// Adds statuses of errors.
    pub fn errors(mut self, statuses: &'static [u16]) -> Operation {
        self.errors.others = statuses;
        self
    }

    /// Needs no key.
    pub fn open(mut self) -> Operation {
        self.errors.is_guarded = false;
        self
    }

    /// Returns the operation as the document has it.
    pub fn json_value(&self, generators: &mut Generators, has_keys: bool) -> Value {
        let mut value = json!({"tags": [self.tag.name()], "operationId": self.id, "summary": self.summary});
        let parameters = self.parameters();
        if !parameters.is_empty() {
            value["parameters"] = parameters.into();
        }
        if let Some(schema) = self.request {
            let schema = schema(&mut generators.requests);
            value["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
        let mut responses = BTreeMap::new();
        for status in self.statuses() {
            responses.insert(status.to_string(), self.error(status, &mut generators.answers));
        }
        if !self.content.is_empty() {
            responses.insert("200".to_owned(), self.success(&mut generators.answers));
        }
        value["responses"] = json!(responses);
        if has_keys && !self.errors.is_guarded {
            value["security"] = json!([]);
        }
        value
    }

    fn parameters(&self) -> Vec<Value> {
        let names = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameter = |name| {
            let schema = json!({"type": "string", "minLength": 1});
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        };
        let query = self
            .query
            .iter()
            .map(|(name, schema)| json!({"name": name, "in": "query", "schema": schema()}));
        names.map(parameter).chain(query).collect()
    }

    fn success(&self, generator: &mut SchemaGenerator) -> Value {
        let content = self.content.iter().map(|content| {
            let keyword = if content.is_item { "itemSchema" } else { "schema" };
            let schema = (content.schema)(generator);
            (content.media_type.to_owned(), json!({keyword: schema}))
        });
        let content: Map<String, Value> = content.collect();
        json!({"description": "Success.", "headers": self.headers(200), "content": content})
    }

    /// Returns the statuses of errors.
    fn statuses(&self) -> Vec<u16> {
        let mut statuses = vec![400, 403];
        if self.errors.is_guarded {
            statuses.push(401);
        }
        if self.errors.has_body {
            statuses.extend([408, 413, 500, 503]);
        }
        statuses.extend(self.errors.others);
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }

    fn error(&self, status: u16, generator: &mut SchemaGenerator) -> Value {
        // Health answers with its state.
        let state = self
            .content
            .first()
            .filter(|_| self.tag == Tag::Monitoring && status == 503);
        let schema: SchemaOf = match state {
            Some(content) => content.schema,
            None if self.path.starts_with("/v1/messages") => schema_of::<AnthropicError>,
            None if self.path.starts_with("/api/") => schema_of::<OllamaError>,
            None => schema_of::<OpenAiError>,
        };
        let description = match status {
            400 => "The request is invalid, or the model cannot answer it.",
            401 => "The server has keys, and the request has none of them.",
            403 => "The server's operator does not allow this, or not for pages of that origin or for that host name.",
            404 => "Not found.",
            408 => "The body was not received in time.",
            413 => "The body exceeds the server's limit.",
            500 => "The server failed.",
            502 => "A download failed.",
            _ => "The server is busy, loads the model, or has no memory left; try again later.",
        };
        let mut answer = json!({"description": description, "headers": self.headers(status)});
        // Answers to HEAD have no body.
        if self.method != "head" {
            answer["content"] = json!({"application/json": {"schema": schema(generator)}});
        }
        answer
    }

    /// The headers of answers with this status.
    fn headers(&self, status: u16) -> Value {
        let mut headers = json!({"x-request-id": {"$ref": "#/components/headers/x-request-id"}});
        if self.tag == Tag::Anthropic {
            headers["request-id"] = json!({"$ref": "#/components/headers/x-request-id"});
        }
        match status {
            200 => headers[NOT_ENFORCED] = json!({"$ref": format!("#/components/headers/{NOT_ENFORCED}")}),
            401 => headers["www-authenticate"] = json!({"$ref": "#/components/headers/www-authenticate"}),
            503 => headers["retry-after"] = json!({"$ref": "#/components/headers/retry-after"}),
            _ => {}
        }
        headers
    }
}
