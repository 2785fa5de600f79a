//! A conversation and the engine that responds.

use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use refrain_engine::{
    Engine, EngineRequest, Error, Finish, GenerateOptions, Generation, Restored, Restriction, Snapshot,
};
use refrain_grammar::ReasoningBudget;
use refrain_text::{Conversation, Tokenizer};
use serde_json::{Value, json};

use crate::generation_args::PromptRenderer;
use crate::response::ResponseWriter;

/// What to do when the context is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// Drop the oldest messages from the model's view
    #[default]
    Shift,
    /// End the response
    Stop,
}

/// After dropping messages, at least 1 / this of the context is free.
const FREE_AFTER_SHIFT: usize = 4;

/// Assumed length in tokens of a message that is not typed yet.
const TYPICAL_MESSAGE_TOKENS: usize = 16;

/// The messages so far, and an engine that has computed them.
///
/// Every turn requests a response to the whole conversation, and the engine computes what is not cached. So it does not
/// matter how a template changes earlier turns (some drop reasoning).
pub(super) struct ChatSession<'a> {
    engine: Engine,
    /// The last prompt, and the response to it.
    tokens: Vec<u32>,
    tokenizer: &'a Tokenizer,
    /// Renders the conversation into prompts.
    pub renderer: PromptRenderer,
    conversation: Conversation,
    /// Index of the first message after the system message that the model sees.
    first_visible: usize,
    /// What to do when the context is full.
    pub on_full: OnFull,
}

/// A response of the model.
pub(super) struct Response {
    pub generation: Generation,
    /// Prompt tokens that were computed before.
    pub cached: usize,
}

impl<'a> ChatSession<'a> {
    /// Creates a chat whose messages are not processed yet.
    pub fn new(
        engine: Engine,
        tokenizer: &'a Tokenizer,
        renderer: PromptRenderer,
        conversation: Conversation,
        on_full: OnFull,
    ) -> Self {
        Self {
            engine,
            tokens: vec![],
            tokenizer,
            renderer,
            conversation,
            first_visible: 0,
            on_full,
        }
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the context length in tokens.
    pub fn context(&self) -> usize {
        self.engine.options().context
    }

    /// Returns the number of tokens of the last prompt and the response to it.
    pub fn used(&self) -> usize {
        self.tokens.len()
    }

    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Replaces the conversation.
    pub fn replace(&mut self, conversation: Conversation) {
        self.conversation = conversation;
        self.first_visible = 0;
    }

    /// Changes the context length, in an engine started by `start`. The conversation is then processed again.
    ///
    /// # Errors
    /// If memory is too short. Then the context length is unchanged.
    pub fn resize(&mut self, context: usize, start: impl Fn(usize) -> Result<Engine, Error>) -> Result<(), Error> {
        let before = self.context();
        // Memory may not suffice for two engines, so the old one ends first.
        self.engine = start(1)?;
        self.tokens.clear();
        match start(context) {
            Ok(engine) => self.engine = engine,
            Err(error) => {
                self.engine = start(before)?;
                return Err(error);
            }
        }
        self.first_visible = 0;
        Ok(())
    }

    /// Number of messages that the model no longer sees.
    pub fn dropped_messages(&self) -> usize {
        self.first_visible.saturating_sub(self.system_messages())
    }

    /// Saves what was computed of the conversation, so that [`ChatSession::restore_state`] avoids processing the conversation again.
    ///
    /// # Errors
    /// If the device fails, or the file cannot be written.
    pub fn save_state(&self, path: &Path) -> Result<(), Error> {
        self.engine.snapshot(&self.tokens)?.save(path)
    }

    /// Restores a state saved with [`ChatSession::save_state`]. It may belong to any conversation: tokens that differ
    /// are processed again.
    ///
    /// # Errors
    /// If the file is damaged, or does not fit the model or context. Then nothing changes.
    pub fn restore_state(&mut self, path: &Path) -> Result<Restored, Error> {
        let snapshot = Snapshot::open(path)?;
        let tokens = snapshot.tokens().to_vec();
        let restored = self.engine.restore(snapshot)?;
        self.tokens = tokens;
        Ok(restored)
    }

    /// Removes all messages but the system message.
    pub fn clear(&mut self) {
        self.conversation.messages.retain(is_system);
        self.first_visible = 0;
    }

    /// Returns the system message.
    pub fn system(&self) -> Option<&str> {
        let system = self.conversation.messages.first().filter(|message| is_system(message));
        system?["content"].as_str()
    }

    /// Sets or replaces the system message.
    pub fn set_system(&mut self, text: &str) {
        let message = message("system", text);
        let messages = &mut self.conversation.messages;
        match messages.first_mut().filter(|message| is_system(message)) {
            Some(system) => *system = message,
            None => {
                messages.insert(0, message);
                self.first_visible += 1;
            }
        }
    }

    /// Appends a user message.
    pub fn add_message(&mut self, text: &str) {
        self.conversation.messages.push(message("user", text));
    }

    /// Removes the model's last response.
    ///
    /// # Errors
    /// If there is no user message.
    pub fn drop_last_response(&mut self) -> anyhow::Result<()> {
        let last = self.last_message();
        let last = last.ok_or_else(|| anyhow!("no message to respond to yet"))?;
        self.conversation.messages.truncate(last + 1);
        Ok(())
    }

    /// Compiles ahead for the response to `message`, so that nobody waits for it later. An empty message stands for one
    /// of typical length.
    ///
    /// # Errors
    /// If the device fails or has too little memory.
    pub fn prepare(&mut self, message: &str) -> Result<(), Error> {
        let mut visible = self.visible();
        visible.messages.push(self::message("user", message));
        // Template errors are reported when the message is sent.
        let Ok(tokens) = self.tokens_of(&visible) else {
            return Ok(());
        };
        let cached = common_prefix(&self.tokens, &tokens);
        let unknown = if message.is_empty() { TYPICAL_MESSAGE_TOKENS } else { 0 };
        let new = (tokens.len() + unknown).min(self.context()).saturating_sub(cached);
        let restriction = match self.renderer.budget {
            Some(_) => Restriction::Later,
            None => Restriction::Never,
        };
        self.engine.prepare((cached, new), restriction)
    }

    /// Generates a response to the last message. If that fails or the response is empty, the message is removed, so
    /// that user and assistant messages keep alternating.
    ///
    /// # Errors
    /// If the template rejects the conversation, the context is full, or engine or writer fail.
    pub fn respond(&mut self, options: &GenerateOptions, writer: &mut ResponseWriter) -> anyhow::Result<Response> {
        let response = self.generate(options, writer);
        let response = response.and_then(|response| writer.finish().map(|()| response));
        if response.is_ok() && !writer.answer.is_empty() {
            let mut message = message("assistant", &writer.answer);
            if !writer.reasoning.is_empty() {
                message["reasoning_content"] = writer.reasoning.as_str().into();
            }
            self.conversation.messages.push(message);
        } else {
            self.conversation.messages.pop();
            self.first_visible = self.first_visible.min(self.conversation.messages.len());
        }
        response
    }

    fn generate(&mut self, options: &GenerateOptions, writer: &mut ResponseWriter) -> anyhow::Result<Response> {
        let rendered = self.renderer.prompt(&self.visible())?;
        self.renderer.configure_writer(&rendered, writer);
        let budget = self.renderer.reasoning_budget(&rendered, self.tokenizer)?;
        let prompt = self.prompt_that_fits(0)?;
        if prompt.len() >= self.context() {
            bail!(self.too_long(prompt.len()));
        }
        let (mut generation, cached) = self.continue_from(prompt, &[], options, budget.as_ref(), writer)?;
        while generation.finish == Finish::Context && self.on_full == OnFull::Shift {
            let dropped_messages = self.first_visible;
            let prompt = self.prompt_that_fits(generation.ids.len())?;
            if self.first_visible == dropped_messages || prompt.len() + generation.ids.len() >= self.context() {
                break;
            }
            let (next, _) = self.continue_from(prompt, &generation.ids, options, budget.as_ref(), writer)?;
            join(&mut generation, next);
        }
        Ok(Response { generation, cached })
    }

    /// Generates after a prompt and the tokens that were generated before the context was full. Also returns the number
    /// of tokens that were computed before.
    fn continue_from(
        &mut self,
        mut tokens: Vec<u32>,
        before: &[u32],
        options: &GenerateOptions,
        budget: Option<&ReasoningBudget>,
        writer: &mut ResponseWriter,
    ) -> anyhow::Result<(Generation, usize)> {
        tokens.extend(before);
        let options = GenerateOptions {
            max_tokens: options.max_tokens.map(|limit| limit - before.len()),
            ..options.clone()
        };
        let mut request = EngineRequest::new(tokens.clone(), options);
        if let Some(budget) = budget {
            let mut constraint = budget.around(None);
            for &id in before {
                constraint.accept(id).map_err(anyhow::Error::msg)?;
            }
            request.constraint = Some(constraint);
        }
        let cached = request.cached_tokens.clone();
        let generated = self.engine.generate(request)?;
        let mut text = generated.text(self.tokenizer);
        let mut has_text = before.is_empty();
        while let Some(mut piece) = text.next().transpose()? {
            if !has_text && !piece.is_empty() {
                has_text = true;
                piece = continuation_text(self.tokenizer, before, text.ids(), &piece);
            }
            if writer.push(&piece).is_break() {
                break;
            }
        }
        let mut generation = text.end();
        let cached = cached.load(Ordering::Relaxed);
        generation.prompt_tokens = tokens.len() - cached;
        self.tokens = tokens;
        self.tokens.extend(&generation.ids);
        Ok((generation, cached))
    }

    /// Renders the prompt as tokens. If it leaves no space for `more` tokens, drops the oldest messages until there is
    /// space for a good response, or only the last message is left.
    fn prompt_that_fits(&mut self, more: usize) -> anyhow::Result<Vec<u32>> {
        let context = self.context();
        let mut tokens = self.tokens()?;
        if self.on_full == OnFull::Stop || tokens.len() + more < context {
            return Ok(tokens);
        }
        while tokens.len() + more + context / FREE_AFTER_SHIFT > context && self.drop_oldest_turn() {
            tokens = self.tokens()?;
        }
        Ok(tokens)
    }

    /// The visible conversation as tokens.
    fn tokens(&self) -> anyhow::Result<Vec<u32>> {
        self.tokens_of(&self.visible())
    }

    fn tokens_of(&self, visible: &Conversation) -> anyhow::Result<Vec<u32>> {
        let rendered = self.renderer.prompt(visible)?;
        Ok(self.tokenizer.encode_rendered(&rendered)?)
    }

    /// The conversation without dropped messages.
    fn visible(&self) -> Conversation {
        let mut visible = self.conversation.clone();
        visible
            .messages
            .drain(self.system_messages()..self.first_visible.max(self.system_messages()));
        visible
    }

    /// Drops the oldest turn: a user message and what follows it. Returns false if it is the last.
    fn drop_oldest_turn(&mut self) -> bool {
        let start = self.first_visible.max(self.system_messages());
        let messages = self.conversation.messages.iter().enumerate();
        let next = messages.skip(start + 1).find(|(_, message)| is_by_user(message));
        let Some((next, _)) = next else {
            return false;
        };
        self.first_visible = next;
        true
    }

    fn system_messages(&self) -> usize {
        usize::from(self.conversation.messages.first().is_some_and(is_system))
    }

    /// Index of the last user message.
    fn last_message(&self) -> Option<usize> {
        self.conversation.messages.iter().rposition(is_by_user)
    }

    fn too_long(&self, tokens: usize) -> String {
        let context = self.context();
        match self.on_full {
            OnFull::Shift => format!(
                "the message needs {tokens} tokens, but the context holds {context}, response included: use /ctx N (or --ctx) for a longer one"
            ),
            OnFull::Stop => format!(
                "the conversation has {tokens} tokens, but the context holds {context}, response included: use /clear to \
                 start over, /ctx N (or --ctx) for a longer context, or /set on-full shift to drop the oldest messages"
            ),
        }
    }
}

/// The first text of tokens that continue others. Decoders drop the space that a text begins with.
fn continuation_text(tokenizer: &Tokenizer, before: &[u32], new: &[u32], text: &str) -> String {
    const CONTEXT_TOKENS: usize = 8;
    let before = &before[before.len().saturating_sub(CONTEXT_TOKENS)..];
    let decode = |ids: &[u32]| tokenizer.decode(ids, true).unwrap_or_default();
    let whole = decode(&[before, new].concat());
    let added = whole.get(decode(before).len()..).unwrap_or_default();
    if added.trim_start() == text.trim_start() {
        added.to_owned()
    } else {
        text.to_owned()
    }
}

/// Number of tokens at the start that both have, but not all of `tokens`: the last one is always computed.
fn common_prefix(held: &[u32], tokens: &[u32]) -> usize {
    let pairs = held.iter().zip(tokens);
    let equal = pairs.take_while(|(held, token)| held == token).count();
    equal.min(tokens.len().saturating_sub(1))
}

/// Appends what was generated after the context was full. Processing the prompt again counts as decoding time.
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

#[cfg(test)]
mod tests;
