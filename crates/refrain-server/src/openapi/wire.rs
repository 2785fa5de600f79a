//! How bodies that are not one JSON value are described: events and lines of JSON.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A server-sent event whose data is the JSON of `T`.
pub(crate) struct EventData<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for EventData<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}EventData", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let content = generator.subschema_for::<T>();
        json_schema!({
            "type": "object",
            "properties": {
                "event": {"type": "string"},
                "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": content},
            },
            "required": ["data"],
        })
    }
}

/// The event that ends a stream of OpenAI's interface.
pub(crate) struct StreamEnd;

impl JsonSchema for StreamEnd {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StreamEnd".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "properties": {"data": {"const": "[DONE]"}}, "required": ["data"]})
    }
}

/// A text that is not JSON, such as a page or metrics.
pub(crate) struct Text;

impl JsonSchema for Text {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}
