//! `POST /v1/embeddings`: embeddings of texts, each of length 1.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::embeddings::{InputField, dimensions, normalised};
use crate::error::{Body, Refusal};
use crate::served::ServedModels;

#[derive(Deserialize)]
pub(crate) struct EmbeddingsRequest {
    model: Option<String>,
    input: InputField,
    dimensions: Option<Value>,
    encoding_format: Option<Value>,
}

#[derive(Serialize)]
struct EmbeddingList<'m> {
    object: &'static str,
    data: Vec<EmbeddingEntry>,
    model: &'m str,
    usage: EmbeddingUsage,
}

#[derive(Serialize)]
struct EmbeddingEntry {
    object: &'static str,
    index: usize,
    embedding: EncodedEmbedding,
}

/// Numbers, or the base64 of their bytes, the lowest of each first.
#[derive(Serialize)]
#[serde(untagged)]
enum EncodedEmbedding {
    Numbers(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
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
            return Err(Refusal::field("encoding_format", "neither \"float\" nor \"base64\""));
        }
    };
    let texts = request.input.tokens(&model)?;
    if texts.is_empty() {
        return Err(Refusal::field("input", "there is no text"));
    }
    let tokens = texts.iter().map(Vec::len).sum();
    let embedded = model.embed(texts).await?.into_iter().enumerate();
    let data = embedded.map(|(index, hidden)| {
        let numbers = normalised(hidden, dimensions);
        let embedding = match as_base64 {
            true => EncodedEmbedding::Base64(base64(numbers.iter().flat_map(|number| number.to_le_bytes()))),
            false => EncodedEmbedding::Numbers(numbers),
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

/// The base64 of bytes (RFC 4648, padded).
fn base64(bytes: impl Iterator<Item = u8>) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut text, mut bytes) = (String::new(), bytes.peekable());
    while bytes.peek().is_some() {
        let three = [bytes.next(), bytes.next(), bytes.next()];
        let word = three
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(byte.unwrap_or(0)));
        let known = three.iter().flatten().count();
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= known { letter as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_standard() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let expected = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(texts.map(|text| base64(text.bytes())), expected);
        assert_eq!(base64([251, 255, 191].into_iter()), "+/+/");
    }
}
