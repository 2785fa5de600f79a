//! Embeddings of texts: the model's hidden state behind the last token.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use refrain_engine::{Engine, EngineEvent, EngineRequest};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;

/// The most texts of a request.
const MOST_TEXTS: usize = 2048;

/// A text or tokens, or several of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "input is neither a text nor tokens, nor a list of these")]
pub(crate) enum InputField {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Several(Vec<Vec<u32>>),
}

impl InputField {
    /// The tokens of each text.
    ///
    /// # Errors
    /// Too many texts, and what the tokenizer says.
    pub fn tokens(self, model: &ServedModel) -> Result<Vec<Vec<u32>>, Refusal> {
        let encoded = |text: String| Ok(model.tokenizer.encode(&text, true)?);
        let count = match &self {
            InputField::Text(_) | InputField::Tokens(_) => 1,
            InputField::Texts(texts) => texts.len(),
            InputField::Several(texts) => texts.len(),
        };
        if count > MOST_TEXTS {
            return Err(Refusal::field(
                "input",
                format!("{count} texts are more than {MOST_TEXTS}"),
            ));
        }
        match self {
            InputField::Text(text) => Ok(vec![encoded(text)?]),
            // An empty list is one of no texts.
            InputField::Tokens(tokens) if tokens.is_empty() => Ok(vec![]),
            InputField::Tokens(tokens) => Ok(vec![tokens]),
            InputField::Texts(texts) => texts.into_iter().map(encoded).collect(),
            InputField::Several(texts) => Ok(texts),
        }
    }
}

/// How many numbers of an embedding are asked for, if not all.
///
/// # Errors
/// What is no number that there may be.
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

/// The first `dimensions` numbers, or all, divided by their length.
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
    /// The embeddings of texts, as the model has them, in their order.
    ///
    /// # Errors
    /// A text of no tokens or too many, an engine that is busy or has failed.
    pub(crate) async fn embed(self: &Arc<Self>, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, Refusal> {
        // Those of one request shall not fill the queue.
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
        let (said, heard) = oneshot::channel();
        let mut said = Some(said);
        let tell = move |event| drop(said.take().map(|said| said.send(event)));
        let _ticket = engine.submit(request, Box::new(tell))?;
        let embedding = match heard.await {
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
    fn what_is_left_of_an_embedding_has_a_length_of_one() {
        assert_eq!(normalised(vec![3.0, 4.0, 12.0], Some(2)), [0.6, 0.8]);
        let length = |embedding: &[f32]| embedding.iter().map(|number| number * number).sum::<f32>();
        assert!((length(&normalised(vec![1e20, 1e20, -1e20], None)) - 1.0).abs() < 1e-6);
        assert_eq!(normalised(vec![0.0; 3], None), [0.0; 3]);
    }
}
