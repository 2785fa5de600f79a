//! The body of a request for a response.

use std::collections::BTreeMap;

use refrain_text::ReasoningOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::items;
use crate::error::Refusal;
use crate::openai::fields::FieldReader;
use crate::openai::options::GenerationFields;
use crate::openai::reasoning::ReasoningFields;
use crate::openai::structure::{RequestedAnswer, of_format, requested_answer};
use crate::openai::tools::ToolSet;
use crate::openapi::items::{
    ConversationField, IncludedField, ItemsField, OtherFields, ReasoningField, ResponseTool, TextField,
};
use crate::openapi::messages::ToolChoiceField;
use crate::served::ServedModel;

/// A conversation of items to answer.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ResponsesRequest {
    /// A text, or items.
    #[schemars(with = "Option<ItemsField>")]
    input: Option<Value>,
    pub instructions: Option<String>,
    #[schemars(with = "Option<Vec<ResponseTool>>")]
    tools: Option<Vec<Value>>,
    #[schemars(with = "Option<ToolChoiceField>")]
    tool_choice: Option<Value>,
    pub previous_response_id: Option<String>,
    /// An id, or an object with one.
    #[schemars(with = "Option<ConversationField>")]
    conversation: Option<Value>,
    /// A prompt that OpenAI's servers keep. It is refused.
    #[schemars(with = "Option<()>")]
    prompt: Option<Value>,
    pub store: Option<bool>,
    #[serde(default)]
    background: bool,
    #[serde(default)]
    pub stream: bool,
    /// The form of the text.
    #[schemars(with = "Option<TextField>")]
    text: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    /// What the response contains beside the text.
    #[schemars(with = "Option<Vec<IncludedField>>")]
    include: Option<Vec<Value>>,
    #[schemars(with = "Option<u64>", range(min = 0, max = 20))]
    top_logprobs: Option<Value>,
    /// Maximum number of tokens of the answer; -1 is no limit.
    #[schemars(with = "Option<i64>", range(min = -1))]
    max_output_tokens: Option<Value>,
    metadata: Option<BTreeMap<String, String>>,
    #[schemars(with = "Option<ReasoningField>")]
    reasoning: Option<Value>,
    #[serde(default)]
    pub chat_template_kwargs: Map<String, Value>,
    #[serde(flatten)]
    #[schemars(with = "OtherFields")]
    others: Map<String, Value>,
}

/// Fields that mean the same as in chats.
const SHARED: [&str; 14] = [
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "truncate_prompt_tokens",
];
/// Fields of reasoning that mean the same as in chats.
const REASONING: [&str; 7] = [
    "think",
    "enable_thinking",
    "thinking",
    "reasoning_effort",
    "thinking_budget",
    "thinking_token_budget",
    "reasoning_budget",
];
/// What responses of OpenAI's API may contain beside the text. Most is of tools that only OpenAI's servers run.
const INCLUDED: [&str; 8] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];
/// Levels of reasoning. Chat templates know some of them.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// Ways to shorten an input. None is shortened here, so that `auto` has the effect of `disabled`.
const TRUNCATIONS: [&str; 2] = ["auto", "disabled"];

/// Fields that are returned as they were sent.
const ECHOED: [&str; 6] = [
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_p",
];

impl ResponsesRequest {
    /// Checks the fields that only OpenAI's servers can follow.
    ///
    /// # Errors
    /// If one is used.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.background {
            return Err(Refusal::field(
                "background",
                "background responses are not supported; stream them instead",
            ));
        }
        if self.prompt.is_some() {
            let why = "this server keeps no prompts; send instructions and input";
            return Err(Refusal::field("prompt", why));
        }
        self.check_repeated()
    }

    /// Checks the types of fields that are only repeated in the response.
    fn check_repeated(&self) -> Result<(), Refusal> {
        let mut tools = self.tools.iter().flatten();
        if let Some(index) = tools.position(|tool| !tool.is_object()) {
            return Err(Refusal::field("tools", format!("tool {index} is no object")));
        }
        let mut fields = FieldReader::new(self.others.clone());
        for name in ["prompt_cache_key", "safety_identifier", "service_tier"] {
            fields.text(name)?;
        }
        fields.count("max_tool_calls")?;
        let given = self
            .top_logprobs
            .clone()
            .map(|count| ("top_logprobs".to_owned(), count));
        FieldReader::new(given.into_iter().collect()).count("top_logprobs")?;
        let summary = self
            .reasoning
            .as_ref()
            .map_or(&Value::Null, |reasoning| &reasoning["summary"]);
        if !(summary.is_null() || summary.is_string()) {
            return Err(Refusal::field("reasoning", "the summary must be a string"));
        }
        self.check_words()
    }

    /// Checks the fields that have one of some words.
    fn check_words(&self) -> Result<(), Refusal> {
        let effort = self.reasoning.iter().map(|reasoning| &reasoning["effort"]);
        let effort = effort.filter(|effort| !effort.is_null());
        let included = self.include.iter().flatten();
        let truncation = self.others.get("truncation").into_iter();
        let given = effort
            .map(|word| ("reasoning", word, &EFFORTS[..]))
            .chain(included.map(|word| ("include", word, &INCLUDED[..])))
            .chain(truncation.map(|word| ("truncation", word, &TRUNCATIONS[..])));
        for (field, word, known) in given {
            if !known.iter().any(|known| word == known) {
                let why = format!("{word} is not one of {}", known.join(", "));
                return Err(Refusal::field(field, why));
            }
        }
        Ok(())
    }

    pub fn generation(&self) -> Result<GenerationFields, Refusal> {
        let mut fields = Map::new();
        for name in SHARED {
            let given = self.others.get(name).cloned();
            given.map(|value| fields.insert(name.to_owned(), value));
        }
        if let Some(limit) = &self.max_output_tokens {
            let field = "max_output_tokens";
            let given = Map::from_iter([(field.to_owned(), limit.clone())]);
            let limit = FieldReader::new(given)
                .limit(field)?
                .filter(|limit| *limit < usize::MAX);
            limit.map(|limit| fields.insert("max_tokens".to_owned(), limit.into()));
        }
        if self.wants_logprobs() {
            fields.insert("logprobs".to_owned(), true.into());
            fields.insert("top_logprobs".to_owned(), self.top_logprobs.clone().unwrap_or_default());
        }
        GenerationFields::read(FieldReader::new(fields))
    }

    /// Returns the options of reasoning.
    pub fn reasoning_options(&self) -> Result<ReasoningOptions, Refusal> {
        let mut fields = Map::new();
        for name in REASONING {
            let given = self.others.get(name).cloned();
            given.map(|value| fields.insert(name.to_owned(), value));
        }
        let reasoning = self.reasoning.clone();
        reasoning.map(|reasoning| fields.insert("reasoning".to_owned(), reasoning));
        let fields: ReasoningFields = crate::body::from_value(fields.into())?;
        Ok(fields.options(&self.chat_template_kwargs))
    }

    /// Returns the request's own items.
    ///
    /// # Errors
    /// If there are none, or `input` is neither a text nor a list.
    pub fn input_items(&self) -> Result<Vec<Value>, Refusal> {
        match &self.input {
            Some(input) => items::of_input(input.clone()),
            None if self.previous_response_id.is_some() || self.conversation.is_some() => Ok(vec![]),
            None => Err(Refusal::field("input", "this field is required")),
        }
    }

    /// Returns the id of the conversation that the request belongs to.
    ///
    /// # Errors
    /// If it is neither a string nor an object with one.
    pub fn conversation_id(&self) -> Result<Option<String>, Refusal> {
        let Some(conversation) = &self.conversation else {
            return Ok(None);
        };
        match conversation.as_str().or(conversation["id"].as_str()) {
            Some(id) => Ok(Some(id.to_owned())),
            None => Err(Refusal::field("conversation", "expected an id, or an object with one")),
        }
    }

    /// Returns the tools that the model can call.
    ///
    /// # Errors
    /// If a function has no name.
    pub fn tools(&self) -> Result<ToolSet, Refusal> {
        ToolSet::of_responses(self.tools.as_deref().unwrap_or_default())
    }

    /// Returns the functions, and the grammar of the answer.
    ///
    /// # Errors
    /// As [`requested_answer`].
    pub fn answer_form(&self, model: &ServedModel, tools: &ToolSet) -> Result<RequestedAnswer, Refusal> {
        let format = match &self.text {
            None => &Value::Null,
            Some(Value::Object(text)) => text.get("format").unwrap_or(&Value::Null),
            Some(_) => return Err(Refusal::field("text", "it is no object")),
        };
        let choice = self.tool_choice.as_ref().map(|choice| tools.qualified_choice(choice));
        let several = self.parallel_tool_calls.unwrap_or(true);
        let format = of_format("text.format", format)?;
        requested_answer(
            model,
            tools.functions(),
            tools.inputs(),
            choice.as_ref(),
            several,
            format,
        )
    }

    /// Whether the response contains log-probabilities.
    fn wants_logprobs(&self) -> bool {
        let count = self.top_logprobs.as_ref().and_then(Value::as_u64);
        self.includes("message.output_text.logprobs") || count.is_some_and(|count| count > 0)
    }

    /// Whether reasoning comes with content that the client can send back.
    pub fn wants_encrypted_reasoning(&self) -> bool {
        self.includes("reasoning.encrypted_content")
    }

    fn includes(&self, name: &str) -> bool {
        self.include.iter().flatten().any(|included| included == name)
    }

    /// Returns the fields that the response repeats.
    pub fn echo(&self, model: &ServedModel) -> Value {
        let mut echo = json!({
            "created_at": model.now(),
            "model": model.name,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata.clone().unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "previous_response_id": self.previous_response_id,
            "store": self.store.unwrap_or(true),
            "text": self.text.clone().filter(|text| !text["format"].is_null()).unwrap_or_else(plain_text),
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            "tools": self.tools.clone().unwrap_or_default(),
            "top_logprobs": self.top_logprobs,
        });
        for name in ECHOED {
            echo[name] = self.others.get(name).cloned().unwrap_or_default();
        }
        if let Some(reasoning) = &self.reasoning {
            echo["reasoning"] = json!({"effort": reasoning["effort"], "summary": reasoning["summary"]});
        }
        if let Ok(Some(id)) = self.conversation_id() {
            echo["conversation"] = json!({"id": id});
        }
        echo
    }
}

/// The form of texts if none is requested.
fn plain_text() -> Value {
    json!({"format": {"type": "text"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_the_response_repeats_have_the_documented_types() {
        let read =
            |field: &str, value: Value| serde_json::from_value::<ResponsesRequest>(json!({"input": "a", field: value}));
        for (field, value) in [
            ("tools", json!([{"type": "web_search"}, 7])),
            ("prompt_cache_key", json!(7)),
            ("safety_identifier", json!([])),
            ("service_tier", json!(true)),
            ("max_tool_calls", json!("many")),
            ("top_logprobs", json!("many")),
            ("reasoning", json!({"summary": 7})),
            ("reasoning", json!({"effort": "bogus"})),
            ("include", json!(["bogus"])),
            ("truncation", json!("zzz")),
        ] {
            let error = read(field, value).expect("a request").check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field}: ")), "{error}");
        }
        assert!(read("metadata", json!("text")).is_err() && read("metadata", json!({"a": 1})).is_err());
        assert!(
            read("metadata", json!({"key": "value"}))
                .expect("a request")
                .check()
                .is_ok()
        );
    }
}
