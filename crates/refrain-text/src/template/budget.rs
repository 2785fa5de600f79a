//! What one rendering may take: bytes that it holds at a time, steps of work, and levels of nesting.
//!
//! A template is a program that comes with a model's files, so it is bounded like one. Each rendering has a thread of
//! its own: all is counted by thread, and a value gives back what it holds when it is dropped.

use std::cell::Cell;

use super::failure::{Attempt, RenderError};

/// Bytes that values and the text rendered so far may hold together, beside the conversation.
const MAX_HELD: usize = 96 << 20;

/// The longest text, that of the prompt included, in bytes.
pub(super) const MAX_TEXT: usize = 32 << 20;

/// Steps after which a template is taken to loop without end. The longest of the published templates needs a few
/// hundred per message.
const MAX_STEPS: u64 = 20_000_000;

/// Bytes of text that are read or written in the time of one step.
const BYTES_PER_STEP: usize = 16;

/// Levels that expressions, blocks, macros and printed values may be nested in each other.
const MAX_DEPTH: usize = 2000;

/// Stack of a rendering's thread, in bytes: more than [`MAX_DEPTH`] levels take.
pub(super) const STACK: usize = 64 << 20;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static ALLOWED: Cell<usize> = const { Cell::new(usize::MAX) };
    static STEPS: Cell<u64> = const { Cell::new(u64::MAX) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Bound what this thread holds and does from here on. What it holds already, the conversation, is not counted.
pub(super) fn begin() {
    ALLOWED.set(HELD.get().saturating_add(MAX_HELD));
    STEPS.set(MAX_STEPS);
}

/// Account for steps of work.
pub(super) fn spend(steps: usize) -> Attempt<()> {
    match STEPS.get().checked_sub(steps as u64) {
        Some(left) => {
            STEPS.set(left);
            Ok(())
        }
        None => Err(RenderError::limit(format_args!(
            "gave up after {MAX_STEPS} steps: the template seems to loop without end"
        ))),
    }
}

/// Account for going through `bytes` of text.
pub(super) fn spend_on_bytes(bytes: usize) -> Attempt<()> {
    spend(1 + bytes / BYTES_PER_STEP)
}

/// Bytes that are counted as held until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Held(usize);

impl Held {
    /// # Errors
    /// If the rendering holds too much already.
    pub fn new(bytes: usize) -> Attempt<Self> {
        let held = HELD.get().saturating_add(bytes);
        if held > ALLOWED.get() {
            return Err(RenderError::limit(format_args!(
                "the template takes more than {} MiB of memory",
                MAX_HELD >> 20
            )));
        }
        HELD.set(held);
        Ok(Held(bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(self.0));
    }
}

/// One level of nesting, until this is dropped.
pub(super) struct Level(());

/// Go one level deeper.
///
/// # Errors
/// If that is too deep.
pub(super) fn deeper() -> Attempt<Level> {
    let depth = DEPTH.get() + 1;
    if depth > MAX_DEPTH {
        return Err(RenderError::limit(format_args!(
            "nested more than {MAX_DEPTH} levels deep, as by what calls itself without end or contains itself"
        )));
    }
    DEPTH.set(depth);
    Ok(Level(()))
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// A text that grows, within the bounds.
#[derive(Debug, Default)]
pub(super) struct BoundedText {
    text: String,
    held: Held,
}

impl BoundedText {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn push(&mut self, part: &str) -> Attempt<()> {
        self.reserve(part.len())?;
        self.text.push_str(part);
        Ok(())
    }

    pub fn push_char(&mut self, c: char) -> Attempt<()> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// `part`, `times` times.
    pub fn push_repeated(&mut self, part: &str, times: usize) -> Attempt<()> {
        self.reserve(part.len().saturating_mul(times))?;
        if !part.is_empty() {
            (0..times).for_each(|_| self.text.push_str(part));
        }
        Ok(())
    }

    /// Make room for `more` bytes. What the old and the new memory hold together counts while one is copied to the other.
    fn reserve(&mut self, more: usize) -> Attempt<()> {
        let needed = self.text.len().saturating_add(more);
        if needed > MAX_TEXT {
            return Err(RenderError::limit(format_args!(
                "the template makes a text of more than {} MiB",
                MAX_TEXT >> 20
            )));
        }
        if needed > self.held.0 {
            let capacity = needed.max(self.held.0 * 2).clamp(32, MAX_TEXT);
            spend_on_bytes(capacity)?;
            let held = Held::new(capacity)?;
            self.text.reserve_exact(capacity - self.text.len());
            self.held = held;
        }
        Ok(())
    }

    pub fn into_string(self) -> String {
        self.text
    }
}
