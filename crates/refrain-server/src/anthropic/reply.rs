//! Replies to Anthropic's clients: a message, whole or as events.

use std::convert::Infallible;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::AnthropicRefusal;
use super::message::{Message, MessageHead};
use crate::error::Refusal;
use crate::events::AnswerEvent;

/// Replies with a message, streamed or whole.
///
/// # Errors
/// If the message is not streamed and the model cannot go on.
pub(super) async fn reply(
    head: MessageHead,
    mut events: Receiver<AnswerEvent>,
    is_streamed: bool,
) -> Result<Response, AnthropicRefusal> {
    let mut message = Message::new(head);
    if is_streamed {
        let begin = message.begin();
        let events = stream::unfold(events, |mut events| async { Some((events.recv().await?, events)) });
        let events = events.flat_map(move |event| stream::iter(reported(&mut message, event)));
        let events = stream::iter([begin]).chain(events).map(|event| {
            let name = event["type"].as_str().unwrap_or_default();
            Ok::<_, Infallible>(Event::default().event(name).data(event.to_string()))
        });
        return Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response());
    }
    while let Some(event) = events.recv().await {
        match event {
            AnswerEvent::Logprobs(_) => {}
            AnswerEvent::Piece(piece) => drop(message.add(piece)),
            AnswerEvent::Ended(ended) => return Ok(Json(message.json(Some(ended))).into_response()),
            AnswerEvent::Failed(refusal) => return Err(refusal.into()),
        }
    }
    Err(Refusal::Silence.into())
}

/// The events of a stream that report an event of the answer.
fn reported(message: &mut Message, event: AnswerEvent) -> Vec<Value> {
    match event {
        // This API has none.
        AnswerEvent::Logprobs(_) => vec![],
        AnswerEvent::Piece(piece) => message.add(piece),
        AnswerEvent::Ended(ended) => message.end(ended),
        AnswerEvent::Failed(refusal) => vec![AnthropicRefusal(refusal).json()],
    }
}
