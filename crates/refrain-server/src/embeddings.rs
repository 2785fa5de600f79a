//! Embeddings of texts: the model's hidden state after the last token.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use refrain_engine::{Engine, EngineEvent, EngineRequest};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;
use crate::tokenize::TextLimit;

/// Maximum number of texts of a request.
const MAX_TEXTS: usize = 2048;

/// A text or its tokens, or a list of either.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "input is neither a text nor tokens, nor a list of these")]
pub(crate) enum InputField {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Several(Vec<Vec<u32>>),
}

impl InputField {
    /// Returns the tokens of each text.
    ///
    /// # Errors
    /// Too many texts, or one that is too long or that the tokenizer cannot represent.
    pub async fn tokens(self, model: &Arc<ServedModel>, limit: TextLimit) -> Result<Vec<Vec<u32>>, Refusal> {
        model.reserve()?;
        let count = match &self {
            InputField::Text(_) | InputField::Tokens(_) => 1,
            InputField::Texts(texts) => texts.len(),
            InputField::Several(texts) => texts.len(),
        };
        if count > MAX_TEXTS {
            return Err(Refusal::field(
                "input",
                format!("{count} texts are more than {MAX_TEXTS}"),
            ));
        }
        let texts = match self {
            InputField::Text(text) => vec![text],
            InputField::Texts(texts) => texts,
            // An empty list holds no texts, rather than one text without tokens.
            InputField::Tokens(tokens) if tokens.is_empty() => return Ok(vec![]),
            InputField::Tokens(tokens) => return Ok(vec![tokens]),
            InputField::Several(texts) => return Ok(texts),
        };
        model.encode(texts, true, limit).await
    }
}

/// Returns how many numbers of an embedding the client wants; `None` for all.
///
/// # Errors
/// A number out of range.
pub(crate) fn dimensions(model: &ServedModel, asked: Option<&Value>) -> Result<Option<usize>, Refusal> {
    let most = model.width;
    match asked {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|count| (1..=most as u64).contains(count)) {
            Some(count) => Ok(Some(count as usize)),
            None => Err(Refusal::field(
                "dimensions",
                format!("{value} is not a number from 1 to {most}"),
            )),
        },
    }
}

/// Returns the first `dimensions` numbers, or all, scaled to length 1.
pub(crate) fn normalised(mut embedding: Vec<f32>, dimensions: Option<usize>) -> Vec<f32> {
    embedding.truncate(dimensions.unwrap_or(usize::MAX));
    let squares = embedding.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>();
    let length = squares.sqrt().max(f64::MIN_POSITIVE);
    for number in &mut embedding {
        *number = (f64::from(*number) / length) as f32;
    }
    embedding
}

impl ServedModel {
    /// Returns the embeddings of texts, in order. Their length is not 1.
    ///
    /// # Errors
    /// A text with no tokens or too many, or an engine that is busy or has failed.
    pub(crate) async fn embed(self: &Arc<Self>, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Refusal> {
        // One request must not fill the queue.
        let engine = self.engine().await?;
        let at_once = engine.options().streams.max(1);
        let embedded = stream::iter(texts).map(|text| self.embed_one(&engine, text));
        embedded.buffered(at_once).try_collect().await
    }

    async fn embed_one(&self, engine: &Engine, text: Vec<u32>) -> Result<Vec<f32>, Refusal> {
        let (record, begin) = (RequestRecord::current(), Instant::now());
        record.add_prompt(text.len());
        let mut request = EngineRequest::embedding(text);
        request.client = record.client();
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let listener = move |event| drop(sender.take().map(|sender| sender.send(event)));
        let _ticket = engine.submit(request, Box::new(listener))?;
        let embedding = match receiver.await {
            Ok(EngineEvent::Embedding(hidden)) => hidden,
            Ok(EngineEvent::Failed(error)) => return Err(error.into()),
            _ => return Err(Refusal::Silence),
        };
        self.figures.whole.add(begin.elapsed());
        Ok(embedding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_embeddings_have_length_one() {
        assert_eq!(normalised(vec![3.0, 4.0, 12.0], Some(2)), [0.6, 0.8]);
        let length = |embedding: &[f32]| embedding.iter().map(|number| number * number).sum::<f32>();
        assert!((length(&normalised(vec![1e20, 1e20, -1e20], None)) - 1.0).abs() < 1e-6);
        assert_eq!(normalised(vec![0.0; 3], None), [0.0; 3]);
    }
}
