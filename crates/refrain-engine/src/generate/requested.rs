//! Requests to an engine by callers that wait for the answers.

use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::{GenerateOptions, GeneratedTokens, TokenSource};
use crate::{Engine, EngineEvent, EngineRequest, EngineTicket, Error, Finish, PickedToken, PromptOutputs};

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
            Ok(EngineEvent::Embedding(_) | EngineEvent::Logits(_)) | Err(_) => Err(Error::EngineFailed),
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

    /// Returns the log-probability of each token behind `tokens[from]`, given all before it.
    ///
    /// # Errors
    /// As [`Engine::submit`], or if the request fails.
    pub fn logprobs(&self, tokens: &[u32], from: usize) -> Result<Vec<f32>, Error> {
        let outputs = PromptOutputs::Logprobs { from };
        self.prompt_outputs(tokens, outputs, tokens.len().saturating_sub(from), |event, logprobs| {
            if let EngineEvent::Token(PickedToken {
                logprobs: Some(token), ..
            }) = event
            {
                logprobs.push(token.sampled);
            }
        })
    }

    /// Returns the logits `[T, vocabulary]` after each token from `tokens[from]` on.
    ///
    /// # Errors
    /// As [`Engine::submit`], or if the request fails.
    pub fn logits(&self, tokens: &[u32], from: usize) -> Result<Vec<f32>, Error> {
        let values = tokens.len().saturating_sub(from) * self.vocabulary();
        self.prompt_outputs(tokens, PromptOutputs::Logits { from }, values, |event, rows| {
            if let EngineEvent::Logits(logits) = event {
                rows.extend(logits);
            }
        })
    }

    fn prompt_outputs(
        &self,
        tokens: &[u32],
        outputs: PromptOutputs,
        values: usize,
        take: impl Fn(EngineEvent, &mut Vec<f32>),
    ) -> Result<Vec<f32>, Error> {
        let options = GenerateOptions {
            max_tokens: Some(0),
            ..GenerateOptions::default()
        };
        let request = EngineRequest {
            prompt_outputs: Some(outputs),
            ..EngineRequest::new(tokens.to_vec(), options)
        };
        let (sender, events) = channel();
        let _ticket = self.submit(request, Box::new(move |event| drop(sender.send(event))))?;
        let mut taken = Vec::with_capacity(values);
        loop {
            match events.recv().map_err(|_| Error::EngineFailed)? {
                EngineEvent::End(_) => return Ok(taken),
                EngineEvent::Failed(error) => return Err(error),
                event => take(event, &mut taken),
            }
        }
    }
}
