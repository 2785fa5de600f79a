//! `POST /v1/embeddings`: embeddings of texts, normalised to length 1.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::embeddings::{InputField, dimensions, normalised};
use crate::error::{Body, Refusal};
use crate::served::ServedModels;
use crate::tokenize::TextLimit;

/// Texts to embed.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbeddingsRequest {
    model: Option<String>,
    input: InputField,
    /// How many numbers an embedding has; all of the model's if absent.
    #[schemars(with = "Option<u64>", range(min = 1))]
    dimensions: Option<Value>,
    #[schemars(with = "Option<EncodingFormat>")]
    encoding_format: Option<Value>,
}

/// How numbers are written.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[allow(dead_code)]
enum EncodingFormat {
    Float,
    Base64,
}

/// Embeddings in the order of the texts.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct EmbeddingList<'m> {
    object: &'static str,
    data: Vec<EmbeddingEntry>,
    model: &'m str,
    usage: EmbeddingUsage,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct EmbeddingEntry {
    object: &'static str,
    index: usize,
    embedding: EncodedEmbedding,
}

/// Numbers, or the base64 of their little-endian bytes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum EncodedEmbedding {
    Numbers(Vec<f32>),
    Base64(String),
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

pub(crate) async fn embeddings(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<EmbeddingsRequest>,
) -> Result<Response, Refusal> {
    let model = models.named(request.model.as_deref())?;
    let dimensions = dimensions(&model, request.dimensions.as_ref())?;
    let as_base64 = match request.encoding_format.as_ref().map(|format| format.as_str()) {
        None | Some(Some("float")) => false,
        Some(Some("base64")) => true,
        Some(_) => {
            return Err(Refusal::field(
                "encoding_format",
                "it is neither \"float\" nor \"base64\"",
            ));
        }
    };
    let texts = request.input.tokens(&model, TextLimit::Context).await?;
    if texts.is_empty() {
        return Err(Refusal::field("input", "there is no text"));
    }
    let tokens = texts.iter().map(Vec::len).sum();
    let embedded = model.embed(texts).await?.into_iter().enumerate();
    let data = embedded.map(|(index, hidden)| {
        let numbers = normalised(hidden, dimensions);
        let embedding = if as_base64 {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            EncodedEmbedding::Base64(BASE64_STANDARD.encode(bytes))
        } else {
            EncodedEmbedding::Numbers(numbers)
        };
        EmbeddingEntry {
            object: "embedding",
            index,
            embedding,
        }
    });
    let list = EmbeddingList {
        object: "list",
        data: data.collect(),
        model: &model.name,
        usage: EmbeddingUsage {
            prompt_tokens: tokens,
            total_tokens: tokens,
        },
    };
    Ok(Json(list).into_response())
}
