//! The text of an answer as its tokens come.

use std::sync::Arc;
use std::time::Instant;

use refrain_engine::{Engine, EngineEvent, EngineTicket, Finish, PickedToken, TextDecoder};
use refrain_text::{Parted, ReasoningMarks, ReasoningSplitter};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;

/// How tokens become text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TextOptions {
    /// Marks between which the model thinks, and whether it begins so.
    pub reasoning: Option<(ReasoningMarks, bool)>,
    /// Whether it may begin to think by itself: it was not told not to.
    pub may_reason: bool,
}

/// A request of an engine, which does not leave before it.
pub(crate) struct AskedText {
    pub events: UnboundedReceiver<EngineEvent>,
    pub _ticket: EngineTicket,
    pub _engine: Arc<Engine>,
}

/// A text that is being generated. Dropping it ends it.
pub(crate) struct Answer {
    pub model: Arc<ServedModel>,
    asked: AskedText,
    stops: Vec<String>,
    options: TextOptions,
    begin: Instant,
    record: Arc<RequestRecord>,
}

impl Answer {
    pub fn new(model: Arc<ServedModel>, asked: AskedText, stops: Vec<String>, options: TextOptions) -> Answer {
        Answer {
            model,
            asked,
            stops,
            options,
            begin: Instant::now(),
            record: RequestRecord::current(),
        }
    }

    /// Its text, piece by piece.
    pub fn pieces(&mut self) -> Pieces<'_> {
        let splitter = |(marks, opened)| ReasoningSplitter::new(marks, opened);
        Pieces {
            text: TextSoFar {
                decoder: TextDecoder::new(&self.model.tokenizer, std::mem::take(&mut self.stops)),
                splitter: self.options.reasoning.map(splitter),
            },
            events: &mut self.asked.events,
            clock: AnswerClock {
                model: &self.model,
                begin: self.begin,
                record: &self.record,
            },
            tokens: 0,
            told: vec![],
            ended: None,
        }
    }
}

/// The pieces of a text, as they become certain.
pub(crate) struct Pieces<'a> {
    text: TextSoFar<'a>,
    events: &'a mut UnboundedReceiver<EngineEvent>,
    clock: AnswerClock<'a>,
    tokens: usize,
    /// Tokens with their likelihoods that nobody took yet.
    told: Vec<PickedToken>,
    ended: Option<Ended>,
}

/// What is noted of a text while it comes.
struct AnswerClock<'a> {
    model: &'a ServedModel,
    begin: Instant,
    record: &'a RequestRecord,
}

impl Pieces<'_> {
    /// The next piece; `None` where the text ends.
    ///
    /// # Errors
    /// If the model cannot go on.
    pub async fn next(&mut self) -> Result<Option<Parted>, Refusal> {
        while self.ended.is_none() {
            let (piece, end) = match self.events.recv().await.ok_or(Refusal::Silence)? {
                EngineEvent::Token(token) => {
                    if self.tokens == 0 {
                        self.clock.model.figures.first_token.add(self.clock.begin.elapsed());
                    }
                    self.tokens += 1;
                    self.clock.record.add_token();
                    let (piece, stopped) = self.text.push(token.id)?;
                    if token.likelihoods.is_some() {
                        self.told.push(token);
                    }
                    (piece, stopped.then_some(Finish::StopString))
                }
                EngineEvent::End(finish) => (self.text.rest()?, Some(finish)),
                EngineEvent::Failed(error) => return Err(error.into()),
                // Of texts there is none.
                EngineEvent::Embedding(_) => return Err(Refusal::Silence),
            };
            if end.is_some() {
                self.clock.model.figures.whole.add(self.clock.begin.elapsed());
            }
            let tokens = self.tokens;
            self.ended = end.map(|finish| Ended { finish, tokens });
            if piece != Parted::default() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// The tokens since this was last asked, if it was asked how likely they are.
    pub fn told(&mut self) -> Vec<PickedToken> {
        std::mem::take(&mut self.told)
    }

    /// How it ended, once [`Pieces::next`] gave `None`.
    pub fn ended(&self) -> Ended {
        self.ended.unwrap_or(Ended {
            finish: Finish::Interrupted,
            tokens: self.tokens,
        })
    }
}

/// How a text ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub finish: Finish,
    /// Tokens of the text, without the one that ended it.
    pub tokens: usize,
}

/// From tokens to what may be said of them.
struct TextSoFar<'m> {
    decoder: TextDecoder<'m>,
    splitter: Option<ReasoningSplitter>,
}

impl TextSoFar<'_> {
    /// The text that is certain with token `id`, and whether a stop string ended it.
    fn push(&mut self, id: u32) -> Result<(Parted, bool), Refusal> {
        let passed = self.decoder.push(id)?;
        let mut parted = self.part(&passed.text);
        if passed.stopped {
            self.end_reasoning(&mut parted);
        }
        Ok((parted, passed.stopped))
    }

    /// What was held back.
    fn rest(&mut self) -> Result<Parted, Refusal> {
        let text = self.decoder.rest()?;
        let mut parted = self.part(&text);
        self.end_reasoning(&mut parted);
        Ok(parted)
    }

    fn part(&mut self, text: &str) -> Parted {
        match &mut self.splitter {
            Some(splitter) => splitter.push(text),
            None => Parted {
                answer: text.to_owned(),
                ..Parted::default()
            },
        }
    }

    fn end_reasoning(&mut self, parted: &mut Parted) {
        if let Some(splitter) = &mut self.splitter {
            let rest = splitter.finish();
            parted.reasoning.push_str(&rest.reasoning);
            parted.answer.push_str(&rest.answer);
        }
    }
}
