//! Limits of one rendering: memory, steps of work and nesting depth.
//!
//! A template is a program that comes with a model's files, so it is limited like untrusted code. Each rendering
//! runs on its own thread and all counters are thread-local. Values return their memory to the budget when they are
//! dropped.

use std::cell::Cell;

use super::error::{RenderError, Try};

/// Limit in bytes of all values and the text rendered so far, the conversation excluded.
const MAX_MEMORY: usize = 96 << 20;

/// Longest text that a template may build, its output included, in bytes.
pub(super) const MAX_TEXT: usize = 32 << 20;

/// Steps after which a template counts as an infinite loop. The longest published template needs a few hundred per
/// message.
const MAX_STEPS: u64 = 20_000_000;

/// Bytes of text that are read or written in one step.
const BYTES_PER_STEP: usize = 16;

/// Limit of nested expressions, blocks, macros and printed values.
const MAX_DEPTH: usize = 2000;

/// Stack size in bytes of the thread that renders: enough for [`MAX_DEPTH`] levels.
pub(super) const STACK_BYTES: usize = 64 << 20;

thread_local! {
    static USED: Cell<usize> = const { Cell::new(0) };
    static MEMORY_LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Starts counting on this thread. Memory that is already held (the conversation) is not counted.
pub(super) fn start() {
    MEMORY_LIMIT.set(USED.get().saturating_add(MAX_MEMORY));
    STEPS_LEFT.set(MAX_STEPS);
}

/// Charges steps of work.
pub(super) fn spend(steps: usize) -> Try<()> {
    match STEPS_LEFT.get().checked_sub(steps as u64) {
        Some(left) => {
            STEPS_LEFT.set(left);
            Ok(())
        }
        None => Err(RenderError::limit(format_args!(
            "stopped after {MAX_STEPS} steps: the template seems to loop forever"
        ))),
    }
}

/// Charges the work of going through `bytes` of text.
pub(super) fn spend_on_bytes(bytes: usize) -> Try<()> {
    spend(1 + bytes / BYTES_PER_STEP)
}

/// Bytes charged to the budget until this guard is dropped.
#[derive(Debug, Default)]
pub(super) struct MemoryCharge(usize);

impl MemoryCharge {
    /// Charges `bytes`.
    ///
    /// # Errors
    /// If that exceeds the memory limit.
    pub fn new(bytes: usize) -> Try<Self> {
        let held = USED.get().saturating_add(bytes);
        if held > MEMORY_LIMIT.get() {
            return Err(RenderError::limit(format_args!(
                "the template uses more than {} MiB of memory",
                MAX_MEMORY >> 20
            )));
        }
        USED.set(held);
        Ok(MemoryCharge(bytes))
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        USED.set(USED.get().saturating_sub(self.0));
    }
}

/// One level of nesting, until this guard is dropped.
pub(super) struct Level(());

/// Enters one more level of nesting.
///
/// # Errors
/// If that exceeds [`MAX_DEPTH`].
pub(super) fn enter_level() -> Try<Level> {
    let depth = DEPTH.get() + 1;
    if depth > MAX_DEPTH {
        return Err(RenderError::limit(format_args!(
            "nesting exceeds {MAX_DEPTH} levels: something calls or contains itself"
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

/// A growing string within the limits.
#[derive(Debug, Default)]
pub(super) struct BoundedText {
    text: String,
    held: MemoryCharge,
}

impl BoundedText {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn push(&mut self, part: &str) -> Try<()> {
        self.reserve(part.len())?;
        self.text.push_str(part);
        Ok(())
    }

    pub fn push_char(&mut self, c: char) -> Try<()> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// Appends `part` `times` times.
    pub fn push_repeated(&mut self, part: &str, times: usize) -> Try<()> {
        self.reserve(part.len().saturating_mul(times))?;
        if !part.is_empty() {
            (0..times).for_each(|_| self.text.push_str(part));
        }
        Ok(())
    }

    /// Makes room for `more` bytes. The old and the new buffer both count while one is copied to the other.
    fn reserve(&mut self, more: usize) -> Try<()> {
        let needed = self.text.len().saturating_add(more);
        if needed > MAX_TEXT {
            return Err(RenderError::limit(format_args!(
                "the template builds a text of more than {} MiB",
                MAX_TEXT >> 20
            )));
        }
        if needed > self.held.0 {
            let capacity = needed.max(self.held.0 * 2).clamp(32, MAX_TEXT);
            spend_on_bytes(capacity)?;
            let held = MemoryCharge::new(capacity)?;
            self.text.reserve_exact(capacity - self.text.len());
            self.held = held;
        }
        Ok(())
    }

    pub fn into_string(self) -> String {
        self.text
    }
}
