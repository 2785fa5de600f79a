//! Generating text: prompt in, tokens picked one by one, text out as soon as it is certain.

mod stop;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use refrain_formats::{DecodeStream, Tokenizer};

use refrain::sample::{MOST_STOP_IDS, Settings};

use crate::sampler::Sampler;
use crate::{Error, Session, Stream};
use stop::StopFilter;

/// How to generate.
pub struct GenerateOptions<'a> {
    /// Tokens to generate at most; `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// Picks the tokens.
    pub sampler: Sampler,
    /// Tokens that end the text. They are in neither text nor ids.
    pub stop_ids: Vec<u32>,
    /// Strings that end the text, wherever token borders fall. They are not in the text; the
    /// tokens that spelled them are among the ids.
    pub stop_strings: Vec<String>,
    /// Turns tokens into text; special tokens are left out of it.
    pub tokenizer: &'a Tokenizer,
}

impl GenerateOptions<'_> {
    /// How the device picks tokens for `position` and on.
    pub(crate) fn settings(&self, position: usize) -> Settings {
        let most = self.max_tokens.unwrap_or(usize::MAX);
        let last = position.saturating_add(most).saturating_sub(1);
        Settings {
            // The host looks for those that find no room.
            stop_ids: self.stop_ids.iter().copied().take(MOST_STOP_IDS).collect(),
            last_position: last.min(i32::MAX as usize) as u32,
            ..self.sampler.settings()
        }
    }

    /// Brings the bias that the settings speak of to a session.
    pub(crate) fn bias(&self, session: &mut Session<'_>, settings: &Settings) -> Result<(), Error> {
        match settings.biased {
            true => session.set_bias(&self.sampler.bias(session.vocabulary())),
            false => Ok(()),
        }
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it with a stop token.
    Stop,
    /// A stop string came up.
    StopString,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// The caller broke off.
    Interrupted,
}

impl Finish {
    /// A word for machines, such as `stop_string`.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::StopString => "stop_string",
            Finish::Length => "length",
            Finish::Context => "context",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// A generated text.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The tokens picked, without the one that ended the text.
    pub ids: Vec<u32>,
    /// Their text, without special tokens and the stop string.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// From the call until the first token was picked.
    pub time_to_first: Duration,
    /// Between the first and the last pick.
    pub decode_time: Duration,
    /// Picks after the first, a stop token's included: what `decode_time` was spent on.
    pub decoded: usize,
}

impl Generation {
    /// Tokens per second from the first pick to the last; `None` if there was but one.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decoded, self.decode_time)
    }

    /// Tokens of the prompt per second until the first pick.
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens, self.time_to_first)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

/// Appends `prompt` to the session's sequence and generates from there.
///
/// `on_text` is called after each token with the text that became certain (often a word, or
/// nothing) and the token's id, and once more if text was held back at the end. Text is held back
/// while it could be the beginning of a stop string or of a character. When `on_text` breaks,
/// generation ends there. The session then holds the prompt and the tokens generated but the last: what
/// the device did beyond them is undone.
///
/// # Errors
/// If the prompt is empty or does not fit the context, the logits are not numbers, or the session
/// fails.
pub fn generate(
    session: &mut Session<'_>,
    prompt: &[u32],
    options: &GenerateOptions<'_>,
    on_text: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
) -> Result<Generation, Error> {
    let start = Instant::now();
    let position = session.position() + prompt.len();
    if options.max_tokens == Some(0) {
        session.feed(prompt)?;
        return Ok(Generating::new(prompt.len(), start).done(Finish::Length, String::new()));
    }
    let settings = options.settings(position);
    options.bias(session, &settings)?;
    let mut stream = session.stream(prompt, &settings)?;
    let generation = follow(&mut stream, position, prompt.len(), start, options, on_text);
    let ended = stream.end();
    let generation = generation?;
    ended.map(|()| generation)
}

/// What generation needs of a stream.
pub(crate) trait Reports {
    /// As [`Stream::next_tokens`], of the first sequence.
    fn next(&mut self) -> Result<Option<u32>, Error>;
}

impl Reports for Stream<'_, '_> {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        Ok(Stream::next_tokens(self)?.map(|reported| reported[0]))
    }
}

/// Takes tokens, the first of which is for `position`, until the text ends.
pub(crate) fn follow(
    tokens: &mut dyn Reports,
    position: usize,
    prompt_tokens: usize,
    start: Instant,
    options: &GenerateOptions<'_>,
    on_text: &mut dyn FnMut(&str, u32) -> ControlFlow<()>,
) -> Result<Generation, Error> {
    let mut generating = Generating::new(prompt_tokens, start);
    let mut text = Text::new(options, on_text);
    let finish = loop {
        let Some(id) = tokens.next()? else {
            break match options.max_tokens == Some(generating.ids.len()) {
                true => Finish::Length,
                false => Finish::Context,
            };
        };
        if id == refrain::sample::NOT_A_NUMBER {
            // One such logit makes every later token meaningless: better no text than that.
            let position = position + generating.ids.len() - 1;
            return Err(Error::NotANumber { position });
        }
        generating.picked();
        if options.stop_ids.contains(&id) {
            break Finish::Stop;
        }
        generating.ids.push(id);
        if let ControlFlow::Break(finish) = text.push(id)? {
            break finish;
        }
    };
    generating.end = Some(Instant::now());
    let text = text.finish(finish)?;
    Ok(generating.done(finish, text))
}

/// A generation in progress.
struct Generating {
    ids: Vec<u32>,
    prompt_tokens: usize,
    start: Instant,
    first_pick: Option<Instant>,
    decoded: usize,
    end: Option<Instant>,
}

impl Generating {
    fn new(prompt_tokens: usize, start: Instant) -> Self {
        Generating {
            ids: vec![],
            prompt_tokens,
            start,
            first_pick: None,
            decoded: 0,
            end: None,
        }
    }

    fn picked(&mut self) {
        match self.first_pick {
            None => self.first_pick = Some(Instant::now()),
            Some(_) => self.decoded += 1,
        }
    }

    fn done(self, finish: Finish, text: String) -> Generation {
        let end = self.end.unwrap_or_else(Instant::now);
        let first_pick = self.first_pick.unwrap_or(end);
        Generation {
            text,
            ids: self.ids,
            finish,
            prompt_tokens: self.prompt_tokens,
            time_to_first: first_pick - self.start,
            decode_time: end - first_pick,
            decoded: self.decoded,
        }
    }
}

/// The text so far, and the way of new text to the caller.
struct Text<'o, 'c> {
    stream: DecodeStream<'o>,
    filter: StopFilter<'o>,
    on_text: &'c mut dyn FnMut(&str, u32) -> ControlFlow<()>,
    text: String,
    last_id: u32,
}

impl<'o, 'c> Text<'o, 'c> {
    fn new(options: &'o GenerateOptions<'_>, on_text: &'c mut dyn FnMut(&str, u32) -> ControlFlow<()>) -> Self {
        Self {
            stream: options.tokenizer.decode_stream(true),
            filter: StopFilter::new(&options.stop_strings),
            on_text,
            text: String::new(),
            last_id: 0,
        }
    }

    /// Takes the next token; breaks if the text ends with it.
    fn push(&mut self, id: u32) -> Result<ControlFlow<Finish>, Error> {
        self.last_id = id;
        let passed = self.filter.push(&self.stream.step(id)?);
        self.text.push_str(&passed.text);
        let answer = (self.on_text)(&passed.text, id);
        Ok(match (passed.stopped, answer) {
            (true, _) => ControlFlow::Break(Finish::StopString),
            (_, ControlFlow::Break(())) => ControlFlow::Break(Finish::Interrupted),
            _ => ControlFlow::Continue(()),
        })
    }

    /// Gives out what was held back, unless the text ended in the middle of it.
    fn finish(mut self, finish: Finish) -> Result<String, Error> {
        if !matches!(finish, Finish::StopString | Finish::Interrupted) {
            let mut passed = self.filter.push(&self.stream.finish()?);
            if !passed.stopped {
                passed.text.push_str(&self.filter.finish());
            }
            self.text.push_str(&passed.text);
            if !passed.text.is_empty() {
                // The text is over: whether the caller wants more of it does not matter.
                let _ = (self.on_text)(&passed.text, self.last_id);
            }
        }
        Ok(self.text)
    }
}

#[cfg(test)]
mod tests;
