//! Generation by an engine, for callers that wait for the tokens.

use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::{GeneratedTokens, TokenSource};
use crate::{Engine, EngineEvent, EngineRequest, EngineTicket, Error, Finish};

/// The tokens of a request, as they arrive.
struct RequestedTokens {
    _ticket: EngineTicket,
    events: Receiver<EngineEvent>,
    finish: Option<Finish>,
}

impl TokenSource for RequestedTokens {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        match self.events.recv() {
            Ok(EngineEvent::Token(token)) => Ok(Some(token.id)),
            Ok(EngineEvent::End(finish)) => {
                self.finish = Some(finish);
                Ok(None)
            }
            Ok(EngineEvent::Failed(error)) => Err(error),
            Ok(EngineEvent::Embedding(_)) | Err(_) => Err(Error::EngineFailed),
        }
    }

    fn finish(&self) -> Option<Finish> {
        self.finish
    }
}

impl Engine {
    /// Submits a request for text, and returns an iterator over its tokens, whose [`text`](GeneratedTokens::text) iterates
    /// over pieces of text. Dropping it cancels the request.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn generate(&self, request: EngineRequest) -> Result<GeneratedTokens<'static>, Error> {
        let (start, prompt, options) = (Instant::now(), request.prompt.len(), request.options.clone());
        let (sender, events) = channel();
        let ticket = self.submit(request, Box::new(move |event| drop(sender.send(event))))?;
        let tokens = RequestedTokens {
            _ticket: ticket,
            events,
            finish: None,
        };
        Ok(GeneratedTokens::new(
            Some(Box::new(tokens)),
            prompt,
            prompt,
            start,
            &options,
        ))
    }
}
