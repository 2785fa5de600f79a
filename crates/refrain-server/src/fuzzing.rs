//! Entry points for fuzz targets: bodies are read as the routes read them, up to where a model is needed.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::anthropic::messages::{self as anthropic, MessagesRequest};
use crate::error::Refusal;
use crate::ollama::chat::ChatRequest as OllamaChatRequest;
use crate::ollama::embed::{EmbedRequest, OldEmbedRequest};
use crate::ollama::generate::GenerateRequest;
use crate::ollama::options::ModelFields;
use crate::ollama::pull::PullRequest;
use crate::openai::chat::ChatRequest;
use crate::openai::completions::CompletionRequest;
use crate::openai::embeddings::EmbeddingsRequest;
use crate::openai::llama_server::{InfillRequest, LlamaCompletion};
use crate::openai::responses::{self, ConversationChange, ConversationRequest, ResponsesRequest};
use crate::openai::tools::ToolSet;
use crate::tokens::DetokenizeRequest;
use crate::{body, messages, page};

/// Number of kinds of bodies.
pub const BODIES: usize = 18;

/// Reads a body of a kind. Whatever the bytes are, it is read or refused.
pub fn read_body(kind: usize, bytes: &[u8]) {
    // A refusal is as good as an answer, but it must have words.
    if let Err(why) = read(kind % BODIES, bytes) {
        assert!(!why.json().to_string().is_empty());
    }
}

fn read(kind: usize, bytes: &[u8]) -> Result<(), Refusal> {
    match kind {
        0 => parsed::<ChatRequest>(bytes),
        1 => parsed::<CompletionRequest>(bytes),
        2 => parsed::<EmbeddingsRequest>(bytes),
        3 => parsed::<LlamaCompletion>(bytes),
        4 => parsed::<InfillRequest>(bytes),
        5 => parsed::<OllamaChatRequest>(bytes),
        6 => parsed::<GenerateRequest>(bytes),
        7 => parsed::<EmbedRequest>(bytes),
        8 => parsed::<OldEmbedRequest>(bytes),
        9 => parsed::<DetokenizeRequest>(bytes),
        10 => responses::exercise(&body::parse::<ResponsesRequest>(bytes)?),
        11 => anthropic::exercise(body::parse::<MessagesRequest>(bytes)?),
        12 => {
            let mut fields = body::parse::<Map<String, Value>>(bytes)?;
            if let Some(Value::Array(tools)) = fields.remove("tools") {
                ToolSet::of_chat(tools)?;
            }
            match fields.remove("messages") {
                Some(Value::Array(given)) => messages::read(given).map(drop),
                _ => Ok(()),
            }
        }
        13 => {
            page::markdown::html(&String::from_utf8_lossy(bytes));
            Ok(())
        }
        14 => body::parse::<ConversationRequest>(bytes)?.items().map(drop),
        15 => parsed::<ConversationChange>(bytes),
        16 => parsed::<ModelFields>(bytes),
        _ => parsed::<PullRequest>(bytes),
    }
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), Refusal> {
    body::parse::<T>(bytes).map(drop)
}
