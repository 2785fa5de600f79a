//! The fields of generation that several requests share, and those of structured output.
//!
//! The server reads these fields one by one ([`GenerationFields`]), so that their types cannot be derived. A test
//! compares the names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::openai::options::GenerationFields;

impl JsonSchema for GenerationFields {
    fn schema_name() -> Cow<'static, str> {
        "GenerationFields".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SharedFields::json_schema(generator)
    }
}

/// Fields of generation. What is absent comes from the model's `generation_config.json`.
#[derive(JsonSchema)]
pub(crate) struct SharedFields {
    /// Name of the model; the server's first model if absent.
    model: Option<String>,
    /// Whether the answer is streamed.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Number of answers.
    #[schemars(range(min = 1, max = 64))]
    n: Option<u64>,
    /// Must equal `n`: the best of several answers is not chosen.
    #[schemars(range(min = 1, max = 64))]
    best_of: Option<u64>,
    /// Maximum number of tokens of an answer; -1 is no limit.
    #[schemars(range(min = -1))]
    max_tokens: Option<i64>,
    /// The newer name of `max_tokens`.
    #[schemars(range(min = -1))]
    max_completion_tokens: Option<i64>,
    /// Minimum number of tokens of an answer.
    min_tokens: Option<u64>,
    /// Keeps the last tokens of the prompt only; -1 is as many as the context holds.
    #[schemars(range(min = -1))]
    truncate_prompt_tokens: Option<i64>,
    #[schemars(range(min = 0))]
    temperature: Option<f32>,
    /// 0 and less consider all tokens.
    top_k: Option<i64>,
    #[schemars(range(min = 0, max = 1))]
    top_p: Option<f32>,
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f32>,
    /// Above 0; 1 has no effect.
    #[schemars(extend("exclusiveMinimum" = 0))]
    repetition_penalty: Option<f32>,
    /// llama-server's name of `repetition_penalty`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    /// Number of last tokens that penalties count, prompt included; -1 is all. Without it they count what was
    /// generated.
    #[schemars(range(min = -1))]
    repeat_last_n: Option<i64>,
    logit_bias: Option<LogitBias>,
    /// Any number; the same one gives the same answer.
    seed: Option<f64>,
    stop: Option<StopStrings>,
    stop_token_ids: Option<Vec<u32>>,
    /// Whether the answer goes on until a limit is reached: for measurements.
    ignore_eos: Option<bool>,
    logprobs: Option<LogprobsField>,
    /// Number of alternatives of each token, in chats.
    #[schemars(range(min = 0, max = 20))]
    top_logprobs: Option<u64>,
    response_format: Option<ResponseFormatField>,
    json_schema: Option<SchemaField>,
    guided_json: Option<SchemaField>,
    /// A Lark grammar.
    grammar: Option<String>,
    /// A Lark grammar.
    guided_grammar: Option<String>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    structured_outputs: Option<StructuredOutputs>,
    /// Not supported: must be absent, false or an empty list.
    prompt_logprobs: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    use_beam_search: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    logits_processors: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    audio: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    allowed_token_ids: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    bad_words: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    include_stop_str_in_output: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    return_tokens: Option<Unsupported>,
    /// Not supported: must be absent, false or an empty list.
    return_token_ids: Option<Unsupported>,
    /// Reasoning is always returned.
    #[schemars(extend("const" = true))]
    include_reasoning: Option<bool>,
    reasoning_format: Option<ReasoningFormat>,
}

/// Where reasoning is written: always in `reasoning_content`.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ReasoningFormat {
    Auto,
    Deepseek,
}

/// A value that asks for nothing.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Unsupported {
    No(#[schemars(extend("const" = false))] bool),
    Empty(#[schemars(length(max = 0))] Vec<Value>),
}

/// Options of a stream.
#[derive(JsonSchema)]
struct StreamOptions {
    /// Whether the stream ends with the number of its tokens.
    include_usage: Option<bool>,
    /// Not supported: must be absent or false.
    #[schemars(extend("const" = false))]
    continuous_usage_stats: Option<bool>,
}

/// A string that ends the answer, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum StopStrings {
    One(String),
    Several(#[schemars(length(max = 16))] Vec<String>),
}

/// Added to the logits of tokens: an object from token ids, or a list of pairs as llama-server takes it. `false`
/// forbids a token.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum LogitBias {
    Object(BTreeMap<String, Bias>),
    Pairs(Vec<(u32, Bias)>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Bias {
    Added(f32),
    Forbidden(#[schemars(extend("const" = false))] bool),
}

/// A switch in chats; the number of alternatives of each token in completions.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum LogprobsField {
    Switch(bool),
    Alternatives(#[schemars(range(min = 0, max = 5))] u64),
}

/// A JSON schema, or the text of one.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum SchemaField {
    Object(Map<String, Value>),
    Text(String),
    Any(bool),
}

/// OpenAI's form of structured output.
#[derive(JsonSchema)]
pub(crate) struct ResponseFormatField {
    #[schemars(rename = "type")]
    kind: FormatKind,
    /// Holds the schema for chats.
    json_schema: Option<NamedSchema>,
    /// The schema for `/v1/responses` and Anthropic's interface.
    schema: Option<Map<String, Value>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
}

/// A JSON schema with a name.
#[derive(JsonSchema)]
struct NamedSchema {
    name: Option<String>,
    description: Option<String>,
    schema: Option<Map<String, Value>>,
    strict: Option<bool>,
}

/// vLLM's form of structured output: one of its fields.
#[derive(JsonSchema)]
struct StructuredOutputs {
    json: Option<SchemaField>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    /// A Lark grammar.
    grammar: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::openai::fields::{FieldReader, names_read};

    #[test]
    fn every_field_that_is_read_is_documented() {
        let read: BTreeSet<String> = names_read(|| drop(GenerationFields::read(FieldReader::new(Map::new()))));
        let schema = SharedFields::json_schema(&mut SchemaGenerator::default());
        let documented = schema.get("properties").and_then(Value::as_object).unwrap().keys();
        assert_eq!(read, documented.cloned().collect());
    }
}
