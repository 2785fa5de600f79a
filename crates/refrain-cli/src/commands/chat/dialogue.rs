//! A conversation beside the session that computes it.

use std::path::Path;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use refrain_engine::{Error, Finish, GenerateOptions, Generation, Restored, Session, Snapshot};
use refrain_text::{Conversation, Tokenizer};
use serde_json::{Value, json};

use crate::answer::AnswerWriter;
use crate::asking::Prompter;

/// What happens to a conversation that the context has no room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// The model no longer sees its oldest turns
    #[default]
    Shift,
    /// It ends there
    Stop,
}

/// The part of the context that is free again when turns have been left out: 1 / this.
const FREE_AGAIN: usize = 4;

/// Tokens of a message that is yet to be typed: a sentence.
const USUAL_MESSAGE: usize = 16;

/// The messages so far, and the tokens that the session holds of them.
///
/// Each turn the template renders the conversation, and only what differs from the tokens held
/// is computed. So it does not matter what a template makes of earlier turns (some leave out what the
/// model thought): the session goes back to where the texts part.
pub(super) struct Dialogue<'a> {
    session: Session,
    tokenizer: &'a Tokenizer,
    /// Makes prompts of the conversation.
    pub prompter: Prompter,
    conversation: Conversation,
    /// Where the messages begin that the model sees behind the system message.
    first: usize,
    /// What happens when the context is full.
    pub on_full: OnFull,
}

/// An answer of the model.
pub(super) struct Answer {
    pub generation: Generation,
    /// Tokens of the prompt that the session held already.
    pub kept: usize,
}

impl<'a> Dialogue<'a> {
    /// A conversation, of which the session holds nothing yet.
    pub fn new(
        session: Session,
        tokenizer: &'a Tokenizer,
        prompter: Prompter,
        conversation: Conversation,
        on_full: OnFull,
    ) -> Self {
        Self {
            session,
            tokenizer,
            prompter,
            conversation,
            first: 0,
            on_full,
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Goes on with another conversation.
    pub fn replace(&mut self, conversation: Conversation) {
        self.conversation = conversation;
        self.first = 0;
    }

    /// Goes on with a context of so many tokens, in a session that `make` makes; what it holds is computed again.
    ///
    /// # Errors
    /// If there is no room for it. Then the context stays as long as it was.
    pub fn resize(&mut self, context: usize, make: impl Fn(usize) -> Result<Session, Error>) -> Result<(), Error> {
        let before = self.session.context();
        // There may be no room for two: the old one goes first.
        self.session = make(1)?;
        match make(context) {
            Ok(session) => self.session = session,
            Err(error) => {
                self.session = make(before)?;
                return Err(error);
            }
        }
        self.first = 0;
        Ok(())
    }

    /// How many messages the model no longer sees.
    pub fn left_out(&self) -> usize {
        self.first.saturating_sub(self.system_messages())
    }

    /// Writes what the session holds to a file, so that [`Dialogue::restore`] spares computing it again.
    ///
    /// # Errors
    /// If the device fails, or the file cannot be written.
    pub fn keep(&mut self, path: &Path) -> Result<(), Error> {
        self.session.snapshot()?.save(path)
    }

    /// Brings back what [`Dialogue::keep`] wrote. Whatever conversation it belongs to: tokens that differ
    /// are computed.
    ///
    /// # Errors
    /// If the file is damaged, or does not fit model or context. Nothing is lost then.
    pub fn restore(&mut self, path: &Path) -> Result<Restored, Error> {
        self.session.restore(&Snapshot::open(path)?)
    }

    /// Forgets all messages but the system message.
    pub fn clear(&mut self) {
        self.conversation.messages.retain(is_system);
        self.first = 0;
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        let system = self.conversation.messages.first().filter(|message| is_system(message));
        system?["content"].as_str()
    }

    /// Sets the system message, or replaces it.
    pub fn set_system(&mut self, text: &str) {
        let message = message("system", text);
        let messages = &mut self.conversation.messages;
        match messages.first_mut().filter(|message| is_system(message)) {
            Some(system) => *system = message,
            None => {
                messages.insert(0, message);
                self.first += 1;
            }
        }
    }

    /// Adds a message of the user.
    pub fn say(&mut self, text: &str) {
        self.conversation.messages.push(message("user", text));
    }

    /// Takes the model's last answer back.
    ///
    /// # Errors
    /// If there is nothing to answer.
    pub fn take_back_answer(&mut self) -> anyhow::Result<()> {
        let last = self.last_message();
        let last = last.ok_or_else(|| anyhow!("there is no message to answer yet"))?;
        self.conversation.messages.truncate(last + 1);
        Ok(())
    }

    /// Makes the programs that the answer to `message` needs, so that nobody waits for them then; of a message that is
    /// empty, those of a usual one.
    ///
    /// # Errors
    /// If the device fails or has too little memory.
    pub fn prepare(&mut self, message: &str) -> Result<(), Error> {
        let mut seen = self.seen();
        seen.messages.push(self::message("user", message));
        // What the template refuses is told when it is said.
        let Ok(tokens) = self.tokens_of(&seen) else {
            return Ok(());
        };
        let new = tokens.len() - common(self.session.tokens(), &tokens);
        let unknown = if message.is_empty() { USUAL_MESSAGE } else { 0 };
        self.session.prepare(new + unknown)
    }

    /// Lets the model answer the last message. If it fails or there is no answer, that message is taken
    /// back, so that the conversation stays one.
    ///
    /// # Errors
    /// If the template refuses the conversation, the context is full, or session or writer fail.
    pub fn answer(&mut self, options: &GenerateOptions, writer: &mut AnswerWriter) -> anyhow::Result<Answer> {
        let answer = self.generate(options, writer);
        let answer = answer.and_then(|answer| writer.end().map(|()| answer));
        if answer.is_ok() && !writer.answer.is_empty() {
            let mut message = message("assistant", &writer.answer);
            if !writer.reasoning.is_empty() {
                message["reasoning_content"] = writer.reasoning.as_str().into();
            }
            self.conversation.messages.push(message);
        } else {
            self.conversation.messages.pop();
            self.first = self.first.min(self.conversation.messages.len());
        }
        answer
    }

    fn generate(&mut self, options: &GenerateOptions, writer: &mut AnswerWriter) -> anyhow::Result<Answer> {
        let rendered = self.prompter.prompt(&self.seen())?;
        self.prompter.watch(&rendered, writer);
        let prompt = self.fitting(0)?;
        if prompt.len() > self.session.context() {
            bail!(self.too_long(prompt.len()));
        }
        let (mut generation, kept) = self.go_on(prompt, &[], options, writer)?;
        while generation.finish == Finish::Context && self.on_full == OnFull::Shift {
            let left_out = self.first;
            let prompt = self.fitting(generation.ids.len())?;
            if self.first == left_out || prompt.len() + generation.ids.len() >= self.session.context() {
                break;
            }
            let (next, _) = self.go_on(prompt, &generation.ids, options, writer)?;
            join(&mut generation, next);
        }
        Ok(Answer { generation, kept })
    }

    /// Generates behind a prompt and the tokens that were generated before the context was full. Returns how many
    /// tokens the session held already, too.
    fn go_on(
        &mut self,
        mut tokens: Vec<u32>,
        before: &[u32],
        options: &GenerateOptions,
        writer: &mut AnswerWriter,
    ) -> anyhow::Result<(Generation, usize)> {
        tokens.extend(before);
        let common = common(self.session.tokens(), &tokens);
        self.session.rewind(common);
        // Recurrent states do not go back: then nothing is kept, and the session computes it again.
        let kept = self.session.position();
        let options = GenerateOptions {
            max_tokens: options.max_tokens.map(|most| most - before.len()),
            ..options.clone()
        };
        let generated = self.session.generate(&tokens[common..], &options)?;
        let mut text = generated.text(self.tokenizer);
        let mut begun = before.is_empty();
        while let Some(mut piece) = text.next().transpose()? {
            if !begun && !piece.is_empty() {
                begun = true;
                piece = following(self.tokenizer, before, text.ids(), &piece);
            }
            if writer.take(&piece).is_break() {
                break;
            }
        }
        Ok((text.end()?, kept))
    }

    /// The prompt. If it leaves no room behind `more` tokens, turns are left out of it, oldest first, until there is
    /// room for a good answer or only the last message is left.
    fn fitting(&mut self, more: usize) -> anyhow::Result<Vec<u32>> {
        let context = self.session.context();
        let mut tokens = self.tokens()?;
        if self.on_full == OnFull::Stop || tokens.len() + more < context {
            return Ok(tokens);
        }
        while tokens.len() + more + context / FREE_AGAIN > context && self.leave_out() {
            tokens = self.tokens()?;
        }
        Ok(tokens)
    }

    /// What the model sees, as tokens.
    fn tokens(&self) -> anyhow::Result<Vec<u32>> {
        self.tokens_of(&self.seen())
    }

    fn tokens_of(&self, seen: &Conversation) -> anyhow::Result<Vec<u32>> {
        let rendered = self.prompter.prompt(seen)?;
        Ok(self.tokenizer.encode_rendered(&rendered)?)
    }

    /// What the model sees.
    fn seen(&self) -> Conversation {
        let mut seen = self.conversation.clone();
        seen.messages
            .drain(self.system_messages()..self.first.max(self.system_messages()));
        seen
    }

    /// Leaves the oldest turn out, a message of the user and what follows it; false if it is the last.
    fn leave_out(&mut self) -> bool {
        let start = self.first.max(self.system_messages());
        let messages = self.conversation.messages.iter().enumerate();
        let next = messages.skip(start + 1).find(|(_, message)| is_by_user(message));
        let Some((next, _)) = next else {
            return false;
        };
        self.first = next;
        true
    }

    fn system_messages(&self) -> usize {
        usize::from(self.conversation.messages.first().is_some_and(is_system))
    }

    /// The user's last message.
    fn last_message(&self) -> Option<usize> {
        self.conversation.messages.iter().rposition(is_by_user)
    }

    fn too_long(&self, tokens: usize) -> String {
        let context = self.session.context();
        match self.on_full {
            OnFull::Shift => format!(
                "the message needs {tokens} tokens, but the context holds {context}: /ctx N (or --ctx) makes it longer"
            ),
            OnFull::Stop => format!(
                "the conversation has {tokens} tokens, but the context holds {context}: /clear begins anew, /ctx N (or \
                 --ctx) makes it longer, /set on-full shift leaves the oldest turns out"
            ),
        }
    }
}

/// The first text of tokens that go on with others. Decoders leave out the space that a text begins with.
fn following(tokenizer: &Tokenizer, before: &[u32], new: &[u32], text: &str) -> String {
    const ENOUGH: usize = 8;
    let before = &before[before.len().saturating_sub(ENOUGH)..];
    let decode = |ids: &[u32]| tokenizer.decode(ids, true).unwrap_or_default();
    let whole = decode(&[before, new].concat());
    let added = whole.get(decode(before).len()..).unwrap_or_default();
    if added.trim_start() == text.trim_start() {
        added.to_owned()
    } else {
        text.to_owned()
    }
}

/// Appends what was generated after the context was full. Computing the prompt again is part of its time.
fn join(generation: &mut Generation, next: Generation) {
    generation.ids.extend(next.ids);
    generation.text.push_str(&next.text);
    generation.finish = next.finish;
    generation.decode_time += next.time_to_first + next.decode_time;
    generation.decoded += next.decoded + 1;
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn is_system(message: &Value) -> bool {
    message["role"] == "system"
}

fn is_by_user(message: &Value) -> bool {
    message["role"] == "user"
}

/// How many tokens at the beginning need not be computed again; the last one must be, for its logits.
fn common(held: &[u32], tokens: &[u32]) -> usize {
    let equal = held
        .iter()
        .zip(tokens)
        .take_while(|(held, token)| held == token)
        .count();
    equal.min(tokens.len().saturating_sub(1))
}

#[cfg(test)]
mod tests;
