//! An answer as a channel of events, for the interfaces that stream blocks or items.

use refrain_text::dialects::AnswerPiece;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::answer::{Answer, Ended};
use crate::error::Refusal;
use crate::openai::logprob;

/// Events that may wait for a slow reader; then the answer waits too.
const MAX_PENDING: usize = 64;

/// What happens to an answer.
pub(crate) enum AnswerEvent {
    /// Log-probabilities of the tokens of what comes next, as chats have them.
    Logprobs(Vec<Value>),
    Piece(AnswerPiece),
    Ended(Ended),
    Failed(Refusal),
}

/// Streams an answer. It is cancelled as soon as the receiver is dropped, while its prompt is computed too.
pub(crate) fn stream(answer: Answer) -> mpsc::Receiver<AnswerEvent> {
    let (sender, receiver) = mpsc::channel(MAX_PENDING);
    tokio::spawn(send_all(answer, sender));
    receiver
}

async fn send_all(mut answer: Answer, events: mpsc::Sender<AnswerEvent>) {
    let model = answer.model.clone();
    let mut pieces = answer.pieces();
    loop {
        let next = tokio::select! {
            next = pieces.next() => next,
            () = events.closed() => return,
        };
        let (found, last) = match next {
            Ok(Some(found)) => (found, None),
            Ok(None) => (vec![], Some(AnswerEvent::Ended(pieces.ended()))),
            Err(why) => (vec![], Some(AnswerEvent::Failed(why))),
        };
        let tokens = pieces.take_logprobs();
        let entries: Vec<Value> = tokens.iter().map(|token| logprob::of_chat(&model, token)).collect();
        let logprobs = (!entries.is_empty()).then_some(AnswerEvent::Logprobs(entries));
        for event in logprobs.into_iter().chain(found.into_iter().map(AnswerEvent::Piece)) {
            if events.send(event).await.is_err() {
                return;
            }
        }
        if let Some(last) = last {
            return drop(events.send(last).await);
        }
    }
}
