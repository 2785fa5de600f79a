//! Notations of calls that are expressions.

use super::marks;
use crate::dialects::{CallForm, Notation};

/// LFM2: Python calls between marks.
pub(super) const LFM2: Notation = Notation {
    name: "lfm2",
    section: Some(marks("<|tool_call_start|>", "<|tool_call_end|>")),
    call: marks("", ""),
    form: CallForm::Python,
    text: None,
    ignored: &[],
};

/// Gemma 4.
pub(super) const GEMMA_4: Notation = Notation {
    name: "gemma-4",
    section: None,
    call: marks("<|tool_call>", "<tool_call|>"),
    form: CallForm::Braces,
    text: None,
    ignored: &["<|tool_response>"],
};

/// Llama 4: a list of Python calls that is the whole answer, perhaps between marks.
pub(super) const LLAMA_4: Notation = Notation {
    name: "llama-4",
    section: None,
    call: marks("", ""),
    form: CallForm::Python,
    text: None,
    ignored: &["<|python_start|>", "<|python_end|>"],
};
