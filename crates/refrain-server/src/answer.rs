//! An answer as its tokens arrive: tokens become text, text becomes reasoning, text and tool calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use refrain_engine::{EngineEvent, EngineTicket, Finish, PickedToken, TextDecoder};
use refrain_grammar::{ReasoningSource, ReasoningTokens};
use refrain_text::Tokenizer;
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;

/// How an answer is read. The default takes text as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerFormat {
    /// The dialect, without calls where no tools are offered; `None` for plain text.
    pub dialect: Option<Dialect>,
    /// The functions that may be called.
    pub functions: Functions,
    /// The end of the rendered prompt, which tells whether the answer begins within reasoning.
    pub prompt_end: String,
    /// Whether the model may begin to reason by itself.
    pub may_reason: bool,
    /// Maximum number of tokens of reasoning.
    pub reasoning_budget: Option<usize>,
}

impl AnswerFormat {
    fn reader(&self) -> Option<AnswerReader> {
        let dialect = self.dialect?;
        Some(AnswerReader::new(dialect, self.functions.clone(), &self.prompt_end))
    }

    /// How the model reasons, if it can.
    pub fn reasoning_source(&self) -> Option<ReasoningSource<'_>> {
        Some(ReasoningSource {
            dialect: self.dialect.as_ref()?,
            may_call: !self.functions.is_empty(),
            prompt_end: &self.prompt_end,
        })
    }

    /// The tokens around reasoning, if these are single tokens.
    pub fn reasoning_tokens(&self, tokenizer: &Tokenizer) -> Option<ReasoningTokens> {
        let marks = self.dialect?.reasoning?;
        let is_open = self.prompt_end.trim_end().ends_with(marks.open);
        Some(ReasoningTokens {
            open: tokenizer.id(marks.open).filter(|_| !is_open && self.may_reason),
            close: tokenizer.id(marks.close)?,
            is_open,
        })
    }

    /// Whether the answer begins within reasoning.
    pub fn is_within_reasoning(&self) -> bool {
        self.reader().is_some_and(|reader| reader.is_reasoning())
    }
}

/// A request in an engine, which stays loaded until the request has finished, however slowly its events are read.
pub(crate) struct SubmittedRequest {
    pub events: UnboundedReceiver<EngineEvent>,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: Arc<AtomicUsize>,
    pub _ticket: EngineTicket,
}

/// An answer that is being generated. Dropping it cancels the request.
pub(crate) struct Answer {
    pub model: Arc<ServedModel>,
    request: SubmittedRequest,
    stops: Vec<String>,
    stops_after: usize,
    format: AnswerFormat,
    begin: Instant,
    record: Arc<RequestRecord>,
    ids: Option<TokenIds>,
}

/// Ids of an answer's tokens as they arrive.
pub(crate) type TokenIds = Arc<Mutex<Vec<u32>>>;

impl Answer {
    /// Wraps a request whose text ends before one of `stops`, but not within its first `stops_after` tokens.
    pub fn new(
        model: Arc<ServedModel>,
        request: SubmittedRequest,
        (stops, stops_after): (Vec<String>, usize),
        format: AnswerFormat,
    ) -> Answer {
        Answer {
            model,
            request,
            stops,
            stops_after,
            format,
            begin: Instant::now(),
            record: RequestRecord::current(),
            ids: None,
        }
    }

    /// Collects the ids of the answer's tokens.
    pub fn collect_ids(&mut self) -> TokenIds {
        self.ids.get_or_insert_default().clone()
    }

    /// The answer, piece by piece.
    pub fn pieces(&mut self) -> Pieces<'_> {
        Pieces {
            decoder: TextDecoder::new(&self.model.tokenizer, std::mem::take(&mut self.stops), self.stops_after),
            reader: self.format.reader(),
            events: &mut self.request.events,
            cached_tokens: &self.request.cached_tokens,
            model: &self.model,
            begin: self.begin,
            record: &self.record,
            ids: self.ids.as_ref(),
            tokens: 0,
            reasoning_tokens: 0,
            logprobs: vec![],
            ended: None,
        }
    }
}

/// The pieces of an answer, as soon as they are certain.
pub(crate) struct Pieces<'a> {
    decoder: TextDecoder<'a>,
    reader: Option<AnswerReader>,
    events: &'a mut UnboundedReceiver<EngineEvent>,
    cached_tokens: &'a AtomicUsize,
    model: &'a ServedModel,
    begin: Instant,
    record: &'a RequestRecord,
    ids: Option<&'a TokenIds>,
    tokens: usize,
    reasoning_tokens: usize,
    /// Tokens with their log-probabilities that were not taken yet.
    logprobs: Vec<PickedToken>,
    ended: Option<Ended>,
}

impl Pieces<'_> {
    /// Returns the next pieces, at least one; `None` at the end of the answer. Safe to cancel.
    ///
    /// # Errors
    /// If the model cannot go on.
    pub async fn next(&mut self) -> Result<Option<Vec<AnswerPiece>>, Refusal> {
        while self.ended.is_none() {
            let event = self.events.recv().await.ok_or(Refusal::Silence)?;
            let (pieces, end) = match event {
                EngineEvent::Token(token) => self.token(token)?,
                EngineEvent::End(finish) => (self.finish(finish)?, Some(finish)),
                EngineEvent::Failed(error) => return Err(error.into()),
                // Requests for text have none.
                EngineEvent::Embedding(_) | EngineEvent::Logits(_) => return Err(Refusal::Silence),
            };
            if let Some(finish) = end {
                self.record.add_end(finish, self.cached_tokens.load(Ordering::Relaxed));
                self.model.figures.whole.add(self.begin.elapsed());
                self.ended = Some(Ended {
                    finish,
                    tokens: self.tokens,
                    reasoning_tokens: self.reasoning_tokens,
                    cached_tokens: self.cached_tokens.load(Ordering::Relaxed),
                    stop: self.decoder.stop(),
                });
            }
            if !pieces.is_empty() {
                return Ok(Some(pieces));
            }
        }
        Ok(None)
    }

    fn token(&mut self, token: PickedToken) -> Result<(Vec<AnswerPiece>, Option<Finish>), Refusal> {
        if self.tokens == 0 {
            self.model.figures.first_token.add(self.begin.elapsed());
        }
        self.tokens += 1;
        self.record.add_token();
        if let Some(Ok(mut ids)) = self.ids.map(|ids| ids.lock()) {
            ids.push(token.id);
        }
        let decoded = self.decoder.push(token.id)?;
        if token.logprobs.is_some() {
            self.logprobs.push(token);
        }
        let mut pieces = self.read(decoded.text);
        let is_reasoning = self.reader.as_ref().is_some_and(AnswerReader::is_reasoning);
        let has_reasoning = pieces.iter().any(|piece| matches!(piece, AnswerPiece::Reasoning(_)));
        self.reasoning_tokens += usize::from(is_reasoning || has_reasoning);
        if decoded.stopped {
            pieces.extend(self.finish_reader(Finish::StopString));
        }
        Ok((pieces, decoded.stopped.then_some(Finish::StopString)))
    }

    /// What was held back.
    fn finish(&mut self, finish: Finish) -> Result<Vec<AnswerPiece>, Refusal> {
        let text = self.decoder.rest()?;
        let mut pieces = self.read(text);
        pieces.extend(self.finish_reader(finish));
        Ok(pieces)
    }

    fn read(&mut self, text: String) -> Vec<AnswerPiece> {
        match &mut self.reader {
            Some(reader) => reader.push(&text),
            None if text.is_empty() => vec![],
            None => vec![AnswerPiece::Text(text)],
        }
    }

    /// Returns what the reader held back. Only what the model ended itself is whole.
    fn finish_reader(&mut self, finish: Finish) -> Vec<AnswerPiece> {
        let end = match finish {
            Finish::Stop => AnswerReader::finish,
            _ => AnswerReader::cut_off,
        };
        self.reader.as_mut().map(end).unwrap_or_default()
    }

    /// Takes the tokens with log-probabilities that arrived since the last call.
    pub fn take_logprobs(&mut self) -> Vec<PickedToken> {
        std::mem::take(&mut self.logprobs)
    }

    /// How it ended, once [`Pieces::next`] returned `None`.
    pub fn ended(&self) -> Ended {
        self.ended.unwrap_or(Ended {
            finish: Finish::Interrupted,
            tokens: self.tokens,
            reasoning_tokens: self.reasoning_tokens,
            cached_tokens: self.cached_tokens.load(Ordering::Relaxed),
            stop: None,
        })
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub finish: Finish,
    /// Tokens of the answer, without the one that ended it.
    pub tokens: usize,
    /// Those of them that are reasoning.
    pub reasoning_tokens: usize,
    /// Tokens of the prompt that were found in the prefix cache.
    pub cached_tokens: usize,
    /// The index of the stop string that ended it.
    pub stop: Option<usize>,
}
